"""The optimizer of a training: AdamW of torch, or that of bitsandbytes, whose averages take a byte each (arXiv 2110.02861)."""

from __future__ import annotations

import importlib.util
from typing import Any

import torch

from reward.trainer.config import LoopConfig, Optimizer


def check_installed(optimizer: Optimizer) -> None:
    """Raise ValueError where the package of an optimizer is not installed."""
    if optimizer == "adamw8bit" and importlib.util.find_spec("bitsandbytes") is None:
        raise ValueError("optimizer adamw8bit needs the package bitsandbytes, which is not installed; install it, or take adamw")


def make_optimizer(groups: list[dict[str, Any]], config: LoopConfig, *, sharded: bool) -> torch.optim.Optimizer:
    """The configuration's optimizer over groups of parameters. Raises ValueError for adamw8bit where it cannot be used."""
    settings: dict[str, Any] = {"lr": config.learning_rate, "betas": config.betas, "weight_decay": config.weight_decay}
    if config.optimizer == "adamw":
        return torch.optim.AdamW(groups, fused=True, **settings)
    check_installed(config.optimizer)
    if sharded:
        raise ValueError("optimizer adamw8bit does not know sharded weights; take adamw with parallel fsdp, or parallel ddp")
    from bitsandbytes.optim import AdamW8bit  # ty: ignore[import-not-found]  # an extra

    return AdamW8bit(groups, **settings)
