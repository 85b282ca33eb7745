"""Configuration that every training shares, whatever it trains. Imports pydantic only."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Precision = Literal["fp32", "bf16"]
Parallel = Literal["ddp", "fsdp"]
Optimizer = Literal["adamw", "adamw8bit"]


class Configuration(BaseModel):
    """Frozen values, checked on construction; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class LoopConfig(Configuration):
    """Settings of the optimisation loop. How many steps there are, and how often it reports, are arguments of the loop."""

    learning_rate: float = Field(1.5e-3, gt=0, description="peak learning rate of AdamW")
    betas: tuple[float, float] = Field((0.9, 0.98), description="AdamW's averaging constants")
    weight_decay: float = Field(0.01, ge=0, description="AdamW's decoupled weight decay")
    schedule: Literal["cosine", "constant"] = Field("cosine", description="learning rate after the warm-up")
    clip_norm: float = Field(1.0, gt=0, description="gradients are scaled down to this norm")
    seed: int = Field(0, ge=0, description="seed of the order of the data and of what is random in a step, such as dropout")
    checkpoint_every: int = Field(
        100, gt=0, description="steps between checkpoints; one is left out while the one before is still being written"
    )
    keep_checkpoints: int = Field(
        2, gt=0, description="newest checkpoints that are kept, or fewer where the disk is small; with 1 a damaged one restarts the run"
    )
    ema_decay: float | None = Field(
        None, ge=0, lt=1, description="validate and export an exponential average of the weights over about 1/(1 - decay) steps; null: off"
    )
    threads: int = Field(1, gt=0, description="CPU threads of torch; more do not help tiny models")
    precision: Precision = Field("fp32", description="bf16: computed in bf16, over fp32 weights")
    optimizer: Optimizer = Field(
        "adamw", description="adamw8bit: its averages take a byte each (package bitsandbytes; not with sharded weights)"
    )


class AdapterConfig(Configuration):
    """Low-rank adapters on linear layers (Hu et al. 2021)."""

    rank: int = Field(64, gt=0, description="rank of the update of each matrix")
    alpha: float = Field(128.0, gt=0, description="the update is scaled by alpha / rank")
    dropout: float = Field(0.0, ge=0, lt=1, description="dropout on the adapters' input")
