"""Settings of editors behind a server. Those that single editors have are fields of the form of ``/v1/images/edits``, by their names."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from stages.editors.process.settings import NEGATIVE
from stages.engine.config import Config


class HttpSettings(Config):
    """What all of them have."""

    base_url: str = Field("", description="Address of the server, such as http://localhost:8000")
    model: str | None = Field(None, description="Name under which the server serves the model; default: its id on the Hub")
    key_variable: str | None = Field(None, description="Environment variable that has the server's API key; default: no key is sent")
    generator_device: Literal["cpu", "cuda"] = Field(
        "cpu", description="Where the server draws noise; on the CPU it is the same for every GPU"
    )
    concurrency: int = Field(4, ge=1, le=16, description="Requests at a time, of one worker")
    tries: int = Field(6, ge=1, description="How often an edit is asked for while the server answers 429, 5xx or only half, or hangs up")
    pause_seconds: float = Field(1, gt=0, description="Pause before the second try, doubled before each further one, at most 60")
    edit_seconds: float = Field(600, gt=0, description="Time-out of an edit; after the second one it is given up")

    @model_validator(mode="before")
    @classmethod
    def _only_what_the_form_carries(cls, given: Any) -> Any:
        unknown = sorted(set(given) - set(cls.model_fields)) if isinstance(given, dict) else []
        if unknown:
            raise ValueError(
                f"the form of /v1/images/edits cannot carry {', '.join(unknown)}: the server would drop it and use its own value"
            )
        return given


GENERAL = set(HttpSettings.model_fields)
PLACES = GENERAL - {"model", "generator_device"}
"""Settings on which no edit depends."""


class KontextSettings(HttpSettings):
    """FLUX.1-Kontext, as its authors use it."""

    num_inference_steps: int = Field(28, ge=1, description="Denoising steps")
    guidance_scale: float = Field(2.5, ge=0, description="The distilled guidance")


class QwenPlusSettings(HttpSettings):
    """Qwen-Image-Edit-2509 and -2511: guidance by a second forward, which servers turn off without a negative prompt."""

    num_inference_steps: int = Field(40, ge=1, description="Denoising steps")
    true_cfg_scale: float = Field(4.0, ge=1, description="Guidance by the instruction")
    negative_prompt: str = Field(" ", min_length=1, description="What guidance leads away from")


class QwenSettings(QwenPlusSettings):
    """The first Qwen-Image-Edit."""

    num_inference_steps: int = Field(50, ge=1, description="Denoising steps")


class OmniGen2Settings(HttpSettings):
    """OmniGen2, as in its authors' example of an edit."""

    num_inference_steps: int = Field(50, ge=1, description="Denoising steps")
    guidance_scale: float = Field(5.0, ge=1, description="Guidance by the instruction")
    guidance_scale_2: float = Field(2.0, ge=1, description="Guidance by the source")
    negative_prompt: str = Field(NEGATIVE, description="What guidance leads away from")


class BagelSettings(HttpSettings):
    """BAGEL. Its guidance is not among the form's fields: the server's own values hold."""

    num_inference_steps: int = Field(50, ge=2, description="Time steps; one less is evaluated")
