"""Configuration of the training of a large editor: frozen values, checked on construction, no heavy imports."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from finetune.config import AdapterLayout
from reward.trainer.config import AdapterConfig, Configuration, LoopConfig, Parallel

ActivationCheckpointing = Literal["none", "selective", "full"]


class ProgressConfig(Configuration):
    """What is measured and shown while an editor trains, on pairs that no arm trains on."""

    every: int = Field(500, gt=0, description="Steps between two measurements")
    pairs: int = Field(64, ge=0, description="Pairs held out of every arm, with all pairs of their sources; 0: nothing is measured")
    times: tuple[float, ...] = Field(
        (0.1, 0.3, 0.5, 0.7, 0.9), min_length=1, description="Times, from 0 (image) to 1 (noise), of the held-out loss"
    )
    samples: int = Field(4, ge=0, description="Held-out pairs whose edits are sampled and shown")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if any(not 0 < time <= 1 for time in self.times):
            raise ValueError(f"times are {self.times}; each must be above 0 and at most 1")
        if self.samples > self.pairs:
            raise ValueError(f"samples is {self.samples}, but only {self.pairs} pairs are held out; lower it or raise pairs")
        return self


class LargeTrainingConfig(LoopConfig):
    """Training of an arm: adapters on frozen weights, or all weights."""

    steps: int | None = Field(1000, gt=0, description="Optimizer steps of every arm; null when epochs is given")
    epochs: float | None = Field(None, gt=0, description="Passes of every arm over its own pairs; null when steps is given")
    batch_size: int = Field(32, gt=0, description="Pairs per step over all workers together; the number of workers divides it")
    pairs_per_pass: int = Field(1, gt=0, description="Pairs of one size that a worker takes through the model at a time")
    adapters: AdapterConfig | None = Field(
        AdapterConfig(rank=64, alpha=64), description="LoRA on every linear layer of the blocks; null: all weights learn"
    )
    adapter_layout: AdapterLayout = Field("split", description="Whether projections that released files fuse share one adapter")
    connector: bool = Field(False, description="With adapters: the part between encoder and blocks learns in full, too")
    learning_rate: float = Field(1e-4, gt=0, description="Peak learning rate of AdamW; 1e-5 is usual where all weights learn")
    betas: tuple[float, float] = Field((0.9, 0.999), description="AdamW's averaging constants")
    schedule: Literal["cosine", "constant"] = Field("constant", description="Learning rate after the warm-up")
    warmup_steps: int = Field(50, ge=0, description="Steps of linear warm-up")
    precision: Literal["fp32", "bf16"] = Field("bf16", description="bf16: computed in bf16; weights that learn are fp32")
    activation_checkpointing: ActivationCheckpointing = Field(
        "full", description="What of a block is computed again in the backward pass; selective keeps attention and every second product"
    )
    compile: bool = Field(False, description="Compile the blocks (torch.compile), one program for all blocks of a kind and size")
    parallel: Parallel = Field("ddp", description="ddp: each worker has all weights; fsdp: each has a shard of every block (FSDP2)")
    loader_workers: int = Field(2, ge=0, description="Processes that read pairs ahead, of each worker; 0: it reads itself")
    report_every: int = Field(10, gt=0, description="Steps between reported metrics")
    progress: ProgressConfig = Field(ProgressConfig(), description="Held-out loss and samples")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("give either steps or epochs, and set the other to null")
        if self.connector and self.adapters is None:
            raise ValueError("connector is for adapters: without them all weights learn; leave it out")
        if self.optimizer == "adamw8bit" and self.parallel == "fsdp":
            raise ValueError("optimizer adamw8bit does not know sharded weights; take adamw with parallel fsdp, or parallel ddp")
        if self.compile and self.activation_checkpointing == "selective":
            raise ValueError("compile does not combine with activation_checkpointing selective; take full or none")
        return self

    def steps_for(self, pairs: int) -> int:
        """Optimizer steps of an arm with so many pairs."""
        return self.steps if self.steps is not None else max(1, round((self.epochs or 0) * pairs / self.batch_size))
