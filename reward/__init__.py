"""The reward model as a library: configuration, prompts, heads, losses, training, scoring, metrics.

Knows nothing of the pipeline around it. Names are loaded on first use, so that importing `reward.config` stays quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOME = {
    "RewardModel": "reward.model",
    "RewardConfig": "reward.config",
    "RewardModelConfig": "reward.config",
    "EditSample": "reward.sample",
    "SampleError": "reward.sample",
    "ImageError": "reward.sample",
    "Score": "reward.scorer",
    "score": "reward.scorer",
    "score_one": "reward.scorer",
    "score_stream": "reward.scorer",
    "better": "reward.scorer",
    "preference": "reward.scorer",
    "RatedGroup": "reward.groups",
    "Preference": "reward.pairs",
    "build_preferences": "reward.pairs",
    "train": "reward.training",
    "pretrain": "reward.pretraining",
}
__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'reward' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
