"""Configuration of the reward model: what it is, how it is shown an edit, how it learns.

Every default is the value that works for the embedded procedural world at 32 pixels. Imports pydantic only, so that
reading a configuration never loads torch.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

DIMENSIONS = ("instruction_following", "visual_quality")
"""The two dimensions that people rate (EditReward, section 2.1)."""


class _Configuration(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class BackboneConfig(_Configuration):
    """A vision-language model: pretrained weights by name, or random weights of the sizes given here."""

    family: Literal["qwen2_5_vl"] = Field("qwen2_5_vl", description="model class; MiMo-VL-7B is of this family too")
    pretrained: str | None = Field(None, description="Hub id or directory of weights; null: random weights, sizes below")
    revision: str | None = Field(None, description="Hub revision of the pretrained weights")
    text_hidden: int = Field(96, gt=0, description="width of the language model")
    text_intermediate: int = Field(192, gt=0, description="width of its MLPs")
    text_layers: int = Field(2, gt=0, description="layers of the language model")
    text_heads: int = Field(4, gt=0, description="attention heads")
    text_kv_heads: int = Field(2, gt=0, description="key and value heads")
    rope_theta: float = Field(100.0, gt=0, description="base of the rotary positions")
    initializer_range: float = Field(0.06, gt=0, description="standard deviation of random weights; 0.02 does not learn")
    vision_hidden: int = Field(64, gt=0, description="width of the vision tower")
    vision_intermediate: int = Field(128, gt=0, description="width of its MLPs")
    vision_depth: int = Field(1, gt=0, description="blocks of the vision tower, all with full attention")
    vision_heads: int = Field(4, gt=0, description="attention heads of the vision tower")
    patch_size: int = Field(16, gt=0, description="side of a patch in pixels")
    merge_size: int = Field(1, gt=0, description="side, in patches, of the square that becomes one language token")

    @model_validator(mode="after")
    def _sizes_fit(self) -> BackboneConfig:
        for width, heads, name in (
            (self.text_hidden, self.text_heads, "text_hidden"),
            (self.vision_hidden, self.vision_heads, "vision_hidden"),
        ):
            if width % heads:
                raise ValueError(f"{name} {width} is not a multiple of its {heads} attention heads; change one of them")
        if (self.text_hidden // self.text_heads) % 2 or (self.vision_hidden // self.vision_heads) % 4:
            raise ValueError(
                "rotary positions need an even head width in the language model and a multiple of 4 in the vision "
                f"tower, got {self.text_hidden // self.text_heads} and {self.vision_hidden // self.vision_heads}"
            )
        if self.text_heads % self.text_kv_heads:
            raise ValueError(f"text_heads {self.text_heads} is not a multiple of text_kv_heads {self.text_kv_heads}")
        return self


class PresentationConfig(_Configuration):
    """How source and edit are shown to the backbone."""

    layout: Literal["images", "clip"] = Field(
        "clip", description="images: two images as in the paper; clip: frames 0 and 1 of one two-frame video"
    )
    image_area: int = Field(1024, gt=0, description="pixels that an image is resized to; the paper: 200704 = 448x448")
    max_instruction_tokens: int = Field(2048, gt=0, description="a longer instruction is an error, never cut")


class HeadConfig(_Configuration):
    """The MLP of each dimension: hidden state at the reward token -> (mu, sigma)."""

    hidden: tuple[int, ...] = Field((96,), description="widths of the hidden layers; the reference: 1024, 16")
    dropout: float = Field(0.0, ge=0, lt=1, description="dropout after the first hidden layer; the reference: 0.05")
    sigma_floor: float = Field(0.1, gt=0, description="smallest sigma: sigma = softplus(raw) + floor")


class RewardModelConfig(_Configuration):
    """The whole model; saved beside its weights."""

    backbone: BackboneConfig = BackboneConfig()
    presentation: PresentationConfig = PresentationConfig()
    heads: HeadConfig = HeadConfig()
    dimensions: tuple[str, ...] = Field(DIMENSIONS, min_length=1, description="rated dimensions, one head each")


class LossConfig(_Configuration):
    """Ranking loss: aggregate term of the paper, and a term per dimension that identifies the heads."""

    ranking: Literal["uncertainty"] = Field("uncertainty", description="-log E[sigmoid(s_a - s_b)], the paper's eq. 4")
    aggregation: Literal["mean"] = Field("mean", description="how dimensions become one score: eq. 3, balanced average")
    aggregate_weight: float = Field(1.0, ge=0, description="weight of the ranking loss of the aggregated score")
    per_dimension_weight: float = Field(
        1.0, ge=0, description="weight of the ranking losses per dimension; at 0 the heads are not identified"
    )

    @model_validator(mode="after")
    def _something_is_learnt(self) -> LossConfig:
        if self.aggregate_weight == 0 and self.per_dimension_weight == 0:
            raise ValueError("aggregate_weight and per_dimension_weight are both 0: nothing would be learnt; raise one")
        return self


class OptimizerConfig(_Configuration):
    """What every optimisation run shares."""

    learning_rate: float = Field(1.5e-3, gt=0, description="peak learning rate of AdamW")
    betas: tuple[float, float] = Field((0.9, 0.98), description="AdamW's averaging constants")
    weight_decay: float = Field(0.01, ge=0, description="AdamW's decoupled weight decay")
    schedule: Literal["cosine", "constant"] = Field("cosine", description="learning rate after the warm-up")
    warmup_ratio: float = Field(0.1, ge=0, lt=1, description="share of the steps in which the rate rises linearly")
    clip_norm: float = Field(1.0, gt=0, description="gradients are scaled down to this norm")
    seed: int = Field(0, ge=0, description="seed of the order of the data and of dropout")
    checkpoint_every: int = Field(100, gt=0, description="steps between checkpoints")
    log_every: int = Field(10, gt=0, description="steps between reported metrics")
    threads: int = Field(1, gt=0, description="CPU threads of torch; more do not help tiny models")
    precision: Literal["fp32", "bf16"] = Field("fp32", description="bf16: autocast over fp32 weights")
    activation_checkpointing: bool = Field(False, description="recompute activations in the backward pass")


class PretrainingConfig(OptimizerConfig):
    """Stand-in for the web pretraining of a real backbone: caption the edit. Uses no ratings."""

    steps: int = Field(1000, ge=0, description="optimizer steps; 0 is off")
    batch_size: int = Field(32, gt=0, description="captioned edits per step")


class TrainingConfig(OptimizerConfig):
    """Training on preferences: a step takes groups, each candidate once, all pairs of a group."""

    learning_rate: float = Field(1e-3, gt=0, description="peak learning rate of AdamW")
    steps: int | None = Field(600, gt=0, description="optimizer steps; null when epochs is given")
    epochs: float | None = Field(None, gt=0, description="passes over the groups; null when steps is given")
    groups_per_batch: int = Field(16, gt=0, description="groups per step, over all workers")
    head_learning_rate: float | None = Field(None, gt=0, description="peak rate of the heads; null: learning_rate")
    validate_every: int = Field(100, gt=0, description="steps between validations; the last step is always validated")
    cache_mebibytes: int = Field(1024, ge=0, description="memory for decoded training images; the rest is decoded anew")

    @model_validator(mode="after")
    def _one_length(self) -> TrainingConfig:
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("set exactly one of steps and epochs, the other to null")
        return self


class RewardConfig(_Configuration):
    """A reward model and how it is trained, in one piece."""

    model: RewardModelConfig = RewardModelConfig()
    loss: LossConfig = LossConfig()
    pretraining: PretrainingConfig = PretrainingConfig()
    training: TrainingConfig = TrainingConfig()

    @model_validator(mode="after")
    def _no_stand_in_with_real_weights(self) -> RewardConfig:
        if self.model.backbone.pretrained is not None and self.pretraining.steps:
            raise ValueError(
                f"pretraining.steps is {self.pretraining.steps}, but the backbone is pretrained "
                f"({self.model.backbone.pretrained}): the stand-in is only for random weights, set pretraining.steps to 0"
            )
        return self
