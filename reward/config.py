"""Configuration of the reward model: what it is, how it is shown an edit, how it learns.

Every default is the value that works for the built-in toy data set at 32 pixels. Imports pydantic only, so that
reading a configuration never loads torch.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

DIMENSIONS = ("instruction_following", "visual_quality")
"""The two dimensions that people rate (EditReward, section 2.1)."""
TOKEN_BUDGET = 16384
"""Tokens of one inference pass, unless the caller knows better."""


class _Configuration(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class BackboneConfig(_Configuration):
    """A vision-language model: pretrained weights by name, or random weights of the sizes given here."""

    family: Literal["qwen2_5_vl", "qwen3_vl"] = Field("qwen2_5_vl", description="model class; MiMo-VL-7B is a qwen2_5_vl")
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
    """How source, instruction and edit are shown to the backbone."""

    layout: Literal["images", "clip"] = Field(
        "clip", description="images: two images as in the paper; clip: frames 0 and 1 of one two-frame video"
    )
    prompt: Literal["words", "reference", "rubric_first"] = Field(
        "words",
        description="words: images, instruction, one reward token; reference: images, then per dimension a rubric and a reward token, as "
        "published; rubric_first: all rubrics, source, instruction, edit, one reward token per dimension",
    )
    rubrics: dict[str, str] | None = Field(
        None, description="text per dimension with {instruction} once (reference prompt) or without (rubric_first); null: ours"
    )
    positions: Literal["mrope", "flat"] = Field(
        "mrope", description="mrope: rows and columns of images as the backbone was pretrained with; flat: 1-D, as published weights need"
    )
    image_area: int = Field(1024, gt=0, description="pixels that an image is resized to; the paper: 200704 = 448x448")
    min_image_area: int | None = Field(
        None, gt=0, description="images between this and image_area keep their size; null: all get image_area"
    )
    max_instruction_tokens: int = Field(2048, gt=0, description="a longer instruction is an error, never cut")

    @model_validator(mode="after")
    def _fits_together(self) -> PresentationConfig:
        if self.min_image_area is not None and self.min_image_area > self.image_area:
            raise ValueError(f"min_image_area {self.min_image_area} is larger than image_area {self.image_area}; lower it or leave it out")
        if self.layout == "clip" and self.prompt == "rubric_first":
            raise ValueError("prompt rubric_first shows two images: set layout to images, or choose another prompt")
        if self.rubrics is not None:
            expected = {"words": None, "reference": 1, "rubric_first": 0}[self.prompt]
            if expected is None:
                raise ValueError("prompt words has no rubrics: leave rubrics out, or choose another prompt")
            for dimension, text in self.rubrics.items():
                if text.count("{instruction}") != expected:
                    raise ValueError(
                        f"the rubric of {dimension} has {text.count('{instruction}')} marks {{instruction}}, "
                        f"prompt {self.prompt} needs {expected}"
                    )
        return self


class HeadConfig(_Configuration):
    """The MLP of each dimension: hidden state at the reward token -> (mu, sigma)."""

    kind: Literal["separate", "shared"] = Field("separate", description="one MLP per dimension, or one for all of them")
    hidden: tuple[int, ...] = Field((96,), description="widths of the hidden layers; the reference: 1024, 16")
    dropout: float = Field(0.0, ge=0, lt=1, description="dropout after the first hidden layer; the reference: 0.05")
    sigma: Literal["softplus", "exp"] = Field("softplus", description="softplus(raw) + sigma_floor, or exp(raw) as published")
    sigma_floor: float = Field(0.1, ge=0, description="smallest sigma; not used with exp")


Aggregation = Literal["mean", "min", "sum", "reference_mean", "reference_min", "reference_sum"]


class RewardModelConfig(_Configuration):
    """The whole model; saved beside its weights."""

    backbone: BackboneConfig = BackboneConfig()
    presentation: PresentationConfig = PresentationConfig()
    heads: HeadConfig = HeadConfig()
    dimensions: tuple[str, ...] = Field(DIMENSIONS, min_length=1, description="rated dimensions, one head each")
    aggregation: Aggregation = Field(
        "mean", description="how dimensions become the overall score (eq. 3); reference_*: the public code's ways with sigma"
    )

    @model_validator(mode="after")
    def _parts_agree(self) -> RewardModelConfig:
        presentation = self.presentation
        if self.backbone.pretrained is not None and presentation.prompt == "words":
            raise ValueError("a pretrained backbone needs a prompt in sentences: set presentation.prompt to reference or rubric_first")
        if presentation.rubrics is not None and set(presentation.rubrics) != set(self.dimensions):
            raise ValueError(f"rubrics are for {', '.join(presentation.rubrics)}, the dimensions are {', '.join(self.dimensions)}")
        if self.heads.kind == "shared" and presentation.prompt == "words":
            raise ValueError("a shared head cannot tell dimensions apart at one reward token: use prompt reference or rubric_first")
        return self


class LossConfig(_Configuration):
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
    keep_checkpoints: int = Field(2, gt=0, description="newest checkpoints that are kept; with 1 a damaged one restarts the run")
    ema_decay: float | None = Field(
        None, gt=0, lt=1, description="validate and export an exponential average of the weights over about 1/(1 - decay) steps; null: off"
    )
    log_every: int = Field(10, gt=0, description="steps between reported metrics")
    threads: int = Field(1, gt=0, description="CPU threads of torch; more do not help tiny models")
    precision: Literal["fp32", "bf16"] = Field("fp32", description="bf16: computed in bf16, over fp32 weights")
    activation_checkpointing: bool = Field(False, description="recompute activations in the backward pass")


class PretrainingConfig(OptimizerConfig):
    """Stand-in for the web pretraining of a real backbone: caption the edit. Uses no ratings."""

    steps: int = Field(1000, ge=0, description="optimizer steps; 0 is off")
    batch_size: int = Field(32, gt=0, description="captioned edits per step")


class LoraConfig(_Configuration):
    """Low-rank adapters on linear layers (Hu et al. 2021)."""

    rank: int = Field(64, gt=0, description="rank of the update of each matrix")
    alpha: float = Field(128.0, gt=0, description="the update is scaled by alpha / rank")
    dropout: float = Field(0.0, ge=0, lt=1, description="dropout on the adapters' input")
    vision: bool = Field(False, description="adapters in the vision tower too; else it stays as it is")


class TrainingConfig(OptimizerConfig):
    """Training on preferences: a step takes groups, each candidate once, all pairs of a group."""

    learning_rate: float = Field(1e-3, gt=0, description="peak learning rate of AdamW")
    steps: int | None = Field(600, gt=0, description="optimizer steps; null when epochs is given")
    epochs: float | None = Field(None, gt=0, description="passes over the groups; null when steps is given")
    groups_per_batch: int = Field(16, gt=0, description="groups per step, over all workers")
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
    parallel: Literal["ddp", "fsdp"] = Field(
        "ddp", description="what several workers do with the weights: ddp: each holds all of them; fsdp: each holds a share (FSDP2)"
    )
    validate_every: int = Field(100, gt=0, description="steps between validations; the last step is always validated")
    cache_mebibytes: int = Field(
        1024, ge=0, description="memory for decoded training images, and as much for held-out ones; the rest is decoded anew"
    )

    @model_validator(mode="after")
    def _one_length(self) -> TrainingConfig:
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("set exactly one of steps and epochs, the other to null")
        return self

    @model_validator(mode="after")
    def _adapters_are_used(self) -> TrainingConfig:
        if self.adapter == "full" and self.lora != LoraConfig():
            raise ValueError("lora has settings, but adapter is full, which uses none; set adapter to lora, or leave lora out")
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
