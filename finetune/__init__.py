"""The image editor as a library: a small FLUX-style editor, and its training on edited pairs.

Names are imported on first use, so that `finetune.config` can be read without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOME = {
    "BASE_TRAINING": "config",
    "CodecConfig": "config",
    "DenoiserConfig": "config",
    "EditSamples": "data",
    "Editor": "editor",
    "EditorConfig": "config",
    "EditorTrainingConfig": "config",
    "ObjectiveConfig": "config",
    "PatchCodec": "codec",
    "SamplerConfig": "config",
    "squared": "data",
    "train": "training.small",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'finetune' has no attribute {name!r}")
    return getattr(import_module(f"finetune.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
