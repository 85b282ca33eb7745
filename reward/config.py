"""Configuration of the reward model: its parts and its input. `reward.training.config` configures its training.

Every default is the value that works for the built-in toy data set at 32 pixels. Imports pydantic only, so that
reading a configuration never loads torch.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

DIMENSIONS = ("instruction_following", "visual_quality")
"""The two dimensions that people rate (EditReward, section 2.1)."""
TOKEN_BUDGET = 16384
"""Tokens of one inference pass, unless the caller sets another number."""


class Configuration(BaseModel):
    """Frozen values, checked on construction; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class BackboneConfig(Configuration):
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


class PresentationConfig(Configuration):
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


class HeadConfig(Configuration):
    """The MLP of each dimension: hidden state at the reward token -> (mu, sigma)."""

    kind: Literal["separate", "shared"] = Field("separate", description="one MLP per dimension, or one for all of them")
    hidden: tuple[int, ...] = Field((96,), description="widths of the hidden layers; the reference: 1024, 16")
    dropout: float = Field(0.0, ge=0, lt=1, description="dropout after the first hidden layer; the reference: 0.05")
    sigma: Literal["softplus", "exp"] = Field("softplus", description="softplus(raw) + sigma_floor, or exp(raw) as published")
    sigma_floor: float = Field(0.1, ge=0, description="smallest sigma; not used with exp")


Aggregation = Literal["mean", "min", "sum", "reference_mean", "reference_min", "reference_sum"]


class RewardModelConfig(Configuration):
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
