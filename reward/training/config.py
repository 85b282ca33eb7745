"""Configuration of how a reward model learns: losses, warm-up, training on preferences. Imports pydantic only."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from reward.config import TOKEN_BUDGET, Configuration, RewardModelConfig
from reward.trainer.config import AdapterConfig, LoopConfig, Parallel


class LossConfig(Configuration):
    """Loss of the aggregate score as in the paper, and the same loss per dimension, which identifies the heads."""

    kind: Literal["uncertainty", "uncertainty_released", "bradley_terry", "bradley_terry_ties", "regression"] = Field(
        "uncertainty",
        description="uncertainty: -log E[sigmoid(s_a - s_b)], the paper's eq. 4; uncertainty_released: E[-log sigmoid], the public code; "
        "bradley_terry; bradley_terry_ties: ties are targets (keep them whole: preferences.ties off); regression: eq. 5, on ratings",
    )
    expectation: Literal["quadrature", "probit"] = Field(
        "quadrature", description="how uncertainty takes its expectation; probit: a closed form, P within 0.02"
    )
    tie_constant: float = Field(5.0, gt=1, description="k of bradley_terry_ties")
    regression_centre: float = Field(2.25, description="score, per dimension, that regression maps to 0; 2.25 as published")
    aggregate_weight: float = Field(1.0, ge=0, description="weight of the loss of the aggregated score")
    per_dimension_weight: float = Field(1.0, ge=0, description="weight of the losses per dimension; at 0 the heads are not identified")

    @model_validator(mode="after")
    def _something_is_learnt(self) -> LossConfig:
        if self.aggregate_weight == 0 and self.per_dimension_weight == 0:
            raise ValueError("aggregate_weight and per_dimension_weight are both 0: nothing would be learnt; raise one")
        if self.expectation == "probit" and self.kind != "uncertainty":
            raise ValueError(f"expectation probit is for kind uncertainty only, not for {self.kind}: leave expectation out")
        return self


class OptimizerConfig(LoopConfig):
    """What the warm-up and the training on preferences share."""

    warmup_ratio: float = Field(0.1, ge=0, lt=1, description="share of the steps in which the rate rises linearly")
    log_every: int = Field(10, gt=0, description="steps between reported metrics")
    activation_checkpointing: bool = Field(False, description="recompute activations in the backward pass")


class PretrainingConfig(OptimizerConfig):
    """Warm-up of a backbone with random weights (toy data only): caption the edit. Uses no ratings."""

    steps: int = Field(1000, ge=0, description="optimizer steps; 0 is off")
    batch_size: int = Field(32, gt=0, description="captioned edits per step")


class LoraConfig(AdapterConfig):
    """Low-rank adapters in the backbone."""

    vision: bool = Field(False, description="adapters in the vision tower too; else it stays as it is")


class TrainingConfig(OptimizerConfig):
    """Training on preferences: a step takes groups, each candidate once and all pairs of a group; or pairs, each for itself."""

    learning_rate: float = Field(1e-3, gt=0, description="peak learning rate of AdamW")
    steps: int | None = Field(600, gt=0, description="optimizer steps; null when epochs is given")
    epochs: float | None = Field(None, gt=0, description="passes over the groups or pairs; null when steps is given")
    groups_per_batch: int | None = Field(16, gt=0, description="groups per step, over all workers; null when pairs_per_batch is given")
    pairs_per_batch: int | None = Field(
        None, gt=0, description="pairs per step, over all workers, drawn from all groups, each with its own two candidates, as in the paper"
    )
    token_budget: int = Field(
        TOKEN_BUDGET, gt=0, description="tokens that a worker takes through the model at a time; gradients of several passes are added up"
    )
    head_learning_rate: float | None = Field(
        None, gt=0, description="peak rate of the heads and of the reward token's vector; null: learning_rate"
    )
    freeze_vocabulary: bool = Field(False, description="leave the token embedding as it is; the reward token's vector always learns")
    adapter: Literal["full", "lora"] = Field(
        "full", description="full: the backbone learns; lora: only adapters in it, merged into its weights at the end"
    )
    lora: LoraConfig = LoraConfig()
    parallel: Parallel = Field(
        "ddp", description="what several workers do with the weights: ddp: each has all of them; fsdp: each has a shard (FSDP2)"
    )
    validate_every: int = Field(100, gt=0, description="steps between validations; the last step is always validated")
    loader_workers: int = Field(
        0,
        ge=0,
        repr=False,  # what a checkpoint belongs to does not depend on it
        description="processes per worker that read, decode and resize images ahead of the model; 0: the worker itself does, when a step "
        "needs them. No result depends on it",
    )
    cache_mebibytes: int = Field(
        1024,
        ge=0,
        description="with loader_workers 0: memory for decoded training images, and as much for held-out ones; the rest is decoded anew",
    )

    @model_validator(mode="after")
    def _one_length(self) -> TrainingConfig:
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("set exactly one of steps and epochs, the other to null")
        return self

    @model_validator(mode="after")
    def _one_kind_of_batch(self) -> TrainingConfig:
        if (self.groups_per_batch is None) == (self.pairs_per_batch is None):
            raise ValueError("set exactly one of groups_per_batch and pairs_per_batch, the other to null")
        return self

    @model_validator(mode="after")
    def _adapters_are_used(self) -> TrainingConfig:
        if self.adapter == "full" and self.lora != LoraConfig():
            raise ValueError("lora has settings, but adapter is full, which uses none; set adapter to lora, or leave lora out")
        return self


class RewardConfig(Configuration):
    """A reward model and how it is trained, in one piece."""

    model: RewardModelConfig = RewardModelConfig()
    loss: LossConfig = LossConfig()
    pretraining: PretrainingConfig = PretrainingConfig()
    training: TrainingConfig = TrainingConfig()

    @model_validator(mode="after")
    def _no_warm_up_of_real_weights(self) -> RewardConfig:
        if self.model.backbone.pretrained is not None and self.pretraining.steps:
            raise ValueError(
                f"pretraining.steps is {self.pretraining.steps}, but the backbone is pretrained "
                f"({self.model.backbone.pretrained}): the warm-up is only for random weights, set pretraining.steps to 0"
            )
        return self
