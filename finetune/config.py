"""Configuration of the image editor and of its training: frozen values, checked on construction, no heavy imports.

The defaults are the small editor that learns on one CPU core within a few minutes: 32-pixel images, a four-token latent grid,
and FLUX's architecture with one double and three single blocks. A larger editor differs in values only.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from reward.trainer.config import Configuration, LoopConfig, Parallel


class CodecConfig(Configuration):
    """Sizes of the patch codec, which the small editor has in place of a VAE: `patches_per_side` squared tokens of `channels` numbers."""

    patches_per_side: int = Field(2, gt=0, description="Latent grid: the image is cut into this many patches per side.")
    channels: int = Field(64, gt=0, description="Principal components kept per patch (FLUX's packed latents have 64 too).")


class DenoiserConfig(Configuration):
    """Sizes of the diffusion transformer and how it sees the source image and the instruction."""

    family: Literal["flux"] = Field("flux", description="Architecture: diffusers' FluxTransformer2DModel.")
    conditioning: Literal["sequence", "channel"] = Field(
        "sequence", description="Source latents appended as tokens (Step1X-Edit, FLUX.1-Kontext) or concatenated as channels."
    )
    heads: int = Field(4, gt=0, description="Attention heads; the hidden width is heads * head_dim.")
    head_dim: int = Field(32, gt=0, description="Width of an attention head; equals the sum of rope_axes.")
    rope_axes: tuple[int, int, int] = Field((8, 12, 12), description="Rotary dimensions for image index, row, column (even).")
    double_blocks: int = Field(1, ge=0, description="Blocks with separate weights for text and image tokens.")
    single_blocks: int = Field(3, gt=0, description="Blocks with shared weights for text and image tokens.")
    text_dim: int = Field(64, gt=0, description="Width of a word embedding.")

    @model_validator(mode="after")
    def _rope_fits_head(self) -> Self:
        if sum(self.rope_axes) != self.head_dim or any(axis <= 0 or axis % 2 for axis in self.rope_axes):
            raise ValueError(f"rope_axes {self.rope_axes} must be three positive even numbers that sum to head_dim ({self.head_dim})")
        return self


class ObjectiveConfig(Configuration):
    """Rectified flow with a shifted time; training and sampling of the small editor share it."""

    time_shift: float = Field(2.0, gt=0, description="s in t = s u / (1 + (s-1) u); 1 is uniform, larger means noisier.")


class RectifiedFlowConfig(Configuration):
    """How training draws times and conditions of a rectified flow."""

    times: Literal["uniform", "logit-normal"] = Field(
        "logit-normal", description="Distribution of the time before its shift; logit-normal: sigmoid(logit_scale * normal)."
    )
    logit_scale: float = Field(1.0, gt=0, description="Scale of the normal in logit-normal times.")
    time_shift: Annotated[float, Field(gt=0)] | Literal["sampling"] = Field(
        "sampling", description="s in t = s u / (1 + (s-1) u); sampling: what the model samples with at the target's size."
    )
    condition_dropout: float = Field(
        0.05, ge=0, lt=1, description="Share of the samples learnt with their null condition, which guidance needs when sampling."
    )


RELEASED_STEP1X_FLOW = RectifiedFlowConfig(time_shift=3.1582, condition_dropout=0.0)
"""As `scripts/finetuning.sh` of stepfun-ai/Step1X-Edit: the shift of 1024 x 1024 pixels at every size, and no dropout."""

NAMED_FLOWS = {"step1x-released": RELEASED_STEP1X_FLOW}


def _named_flow(value: Any) -> Any:
    if isinstance(value, str):
        if value not in NAMED_FLOWS:
            raise ValueError(f"there is no rectified flow named {value!r}; known: {', '.join(NAMED_FLOWS)}")
        return NAMED_FLOWS[value]
    return value


FlowSetting = Annotated[RectifiedFlowConfig, BeforeValidator(_named_flow)]
"""A rectified flow by its values or by its name."""


AdapterLayout = Literal["fused", "split"]
"""One LoRA adapter per layer of the released files, which fuse projections, or per layer of the library's model."""


class SamplingConfig(Configuration):
    """How an edit is sampled from a large editor."""

    steps: int = Field(28, gt=0, description="Euler steps from noise (t = 1) to image (t = 0).")
    guidance: float = Field(6.0, ge=0, description="Classifier-free guidance; 1: the null condition is not computed.")
    side: int = Field(512, gt=0, description="Images have an area of about side ** 2 pixels, in training as in sampling.")


class SamplerConfig(Configuration):
    """How an edit is drawn from the trained flow."""

    steps: int = Field(8, gt=0, description="Euler steps from noise (t = 1) to image (t = 0).")
    seed: int = Field(0, ge=0, description="Seed of the starting noise.")
    batch_size: int = Field(64, gt=0, description="Images denoised together; bounds memory only.")


class EditorConfig(Configuration):
    """Everything that defines an editor apart from its weights and vocabulary."""

    image_size: int = Field(32, gt=0, description="Side of the square images, in pixels.")
    codec: CodecConfig = Field(CodecConfig(), description="The image codec.")
    denoiser: DenoiserConfig = Field(DenoiserConfig(), description="The diffusion transformer.")
    objective: ObjectiveConfig = Field(ObjectiveConfig(), description="The flow that is learnt and sampled.")
    sampler: SamplerConfig = Field(SamplerConfig(), description="How edits are drawn.")
    seed: int = Field(0, ge=0, description="Seed of the initial weights.")

    @model_validator(mode="after")
    def _patches_fit(self) -> Self:
        side = self.codec.patches_per_side
        if self.image_size % side:
            raise ValueError(f"image_size ({self.image_size}) must be a multiple of codec.patches_per_side ({side})")
        values = 3 * (self.image_size // side) ** 2
        if self.codec.channels > values:
            raise ValueError(f"codec.channels ({self.codec.channels}) exceeds the {values} values of a patch")
        return self


class EditorTrainingConfig(LoopConfig):
    """One training of an editor; the defaults are the fine-tune of the small editor."""

    steps: int = Field(700, gt=0, description="Optimizer steps.")
    batch_size: int = Field(32, gt=0, description="Samples per step over all workers together.")
    learning_rate: float = Field(2e-3, gt=0, description="Peak learning rate of AdamW.")
    betas: tuple[float, float] = Field((0.9, 0.99), description="AdamW's averaging constants.")
    warmup_steps: int = Field(50, ge=0, description="Steps of linear warm-up.")
    ema_decay: float | None = Field(0.99, ge=0, lt=1, description="Decay of the averaged weights that training returns; null: no average.")
    report_every: int = Field(25, gt=0, description="Steps between reported metrics.")
    token_budget: int = Field(
        16384, gt=0, description="Tokens that a worker takes through the editor at a time; gradients of several passes are added up."
    )
    activation_checkpointing: bool = Field(False, description="Recompute activations in the backward pass.")
    parallel: Parallel = Field(
        "ddp", description="What several workers do with the weights: ddp: each has all of them; fsdp: each has a shard (FSDP2)."
    )


BASE_TRAINING = EditorTrainingConfig(steps=900, learning_rate=3e-3)
"""Training of the small base editor from random weights, before any fine-tune."""
