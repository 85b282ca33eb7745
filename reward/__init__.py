"""The reward model as a library: configuration, prompts, heads, losses, training, scoring, metrics.

Knows nothing of the pipeline around it. Names are loaded on first use, so that importing `reward.config` stays quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOME = {
    "RewardModel": "reward.model.model",
    "RewardConfig": "reward.training.config",
    "RewardModelConfig": "reward.config",
    "EditSample": "reward.inputs.sample",
    "SampleError": "reward.inputs.sample",
    "ImageError": "reward.inputs.sample",
    "Score": "reward.inference.scorer",
    "score": "reward.inference.scorer",
    "score_one": "reward.inference.scorer",
    "score_stream": "reward.inference.scorer",
    "better": "reward.inference.scorer",
    "preference": "reward.inference.scorer",
    "RatedGroup": "reward.inputs.groups",
    "Preference": "reward.inputs.groups",
    "build_preferences": "reward.inputs.groups",
    "train": "reward.training.train",
    "pretrain": "reward.training.pretrain",
}
__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'reward' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
