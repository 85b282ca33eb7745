"""Settings of the editors with an interpreter of their own. Defaults are their authors' for edits."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from stages.editors.places import Place
from stages.engine.config import Config

NEGATIVE = (
    "(((deformed))), blurry, over saturation, bad anatomy, disfigured, poorly drawn face, mutation, mutated, (extra_limb), (ugly), "
    "(poorly drawn hands), fused fingers, messy drawing, broken legs censor, censored, censor_bar"
)
"""Negative prompt of OmniGen2's authors."""


class ProcessSettings(Config):
    """What all of them have: none of it changes an edit but ``weights``."""

    python: Place | None = Field(None, description="Interpreter that has the packages; default: that of `pipeline editors install`")
    checkout: Place | None = Field(None, description="Folder with the authors' code; default: `checkout` in the editor's environment")
    weights: Place | None = Field(None, description="Folder with the weights; default: those on the Hub")
    start_seconds: float = Field(1800, gt=0, description="Time-out of loading the model")
    edit_seconds: float = Field(600, gt=0, description="Time-out of an edit; after the second one it is a failure")
    steps: int = Field(50, ge=1, description="Denoising steps")


PLACES = {"python", "checkout", "start_seconds", "edit_seconds"}
"""Settings on which no edit depends."""


class OmniGen2Settings(ProcessSettings):
    """OmniGen2, as in its authors' example of an edit."""

    text_guidance: float = Field(5.0, ge=1, description="Guidance by the instruction")
    image_guidance: float = Field(2.0, ge=1, description="Guidance by the source; above 1 it costs a third forward per step")
    negative_prompt: str = Field(NEGATIVE, description="What guidance leads away from")


class BagelSettings(ProcessSettings):
    """BAGEL, as in its authors' demonstration. Their script for GEdit-Bench has other values (1.5, 0.4)."""

    timestep_shift: float = Field(3.0, gt=0, description="Shift of the time steps towards noise")
    cfg_text_scale: float = Field(4.0, ge=1, description="Guidance by the instruction")
    cfg_img_scale: float = Field(2.0, ge=1, description="Guidance by the source")
    cfg_interval_start: float = Field(0.0, ge=0, le=1, description="Time below which there is no guidance")
    cfg_renorm_min: float = Field(0.0, ge=0, le=1, description="Least factor of the renormalisation of guidance")
    cfg_renorm_type: Literal["global", "channel", "text_channel"] = Field("text_channel", description="What is renormalised")


class OvisU1Settings(ProcessSettings):
    """Ovis-U1, as in its authors' script for edits."""

    text_guidance: float = Field(6.0, ge=1, description="Guidance by the instruction")
    image_guidance: float = Field(1.5, ge=1, description="Guidance by the source")


class Step1XEdit11Settings(ProcessSettings):
    """Step1X-Edit v1.1, as in the fork's example."""

    steps: int = Field(28, ge=1, description="Denoising steps")
    guidance: float = Field(6.0, ge=1, description="Guidance by the instruction")


class Step1XEdit12Settings(ProcessSettings):
    """Step1X-Edit v1.2, as in the fork's example, without reasoning and reflection."""

    guidance: float = Field(4.0, ge=1, description="Guidance by the instruction")
