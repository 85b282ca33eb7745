"""Settings of the editors that run in process.

What changes pixels by more than rounding is no setting of an editor: fewer steps than its authors take, distilled or quantised weights,
attention in 8 bits and caches of features make an editor of another name.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, create_model

from stages.editors.places import Place
from stages.engine.config import Config


class NativeSettings(Config):
    """Settings of all models; :func:`settings_type` adds those of sampling, with the authors' values."""

    steps: int = Field(gt=0, description="Denoising steps")
    path: Place | None = Field(None, description="Directory of the weights, laid out as on the Hub; default: they come from the Hub")
    revision: str = Field("main", description="Branch, tag or commit on the Hub; only a commit stays the same")
    dtype: Literal["bf16", "fp32"] = Field("bf16", description="Precision of weights and computation")
    attention: Literal[
        "auto",
        "native",
        "_native_cudnn",
        "_native_flash",
        "_native_efficient",
        "flash",
        "flash_hub",
        "_flash_3",
        "_flash_3_hub",
        "xformers",
    ] = Field("auto", description="Attention backend of diffusers; auto: FlashAttention 3 or 2 where installed, else torch's")
    compile: Literal["auto", "none", "regional"] = Field("auto", description="Compile the denoiser's repeated blocks; auto: on a GPU")
    offload: Literal["auto", "none", "model", "layers"] = Field(
        "auto", description="What waits in host memory: nothing, models that are not running, or all layers; auto: the least that fits"
    )


def settings_type(name: str, steps: int, guidance: float | None, negative_prompt: str | None) -> type[NativeSettings]:
    """Settings of one model. None leaves the setting out: the weights take no guidance, or no negative prompt."""

    def enough(value: int) -> int:
        if value < steps:
            raise ValueError(f"{name} takes {steps} steps, and fewer make another editor: describe it under a name of its own")
        return value

    sampling: dict[str, Any] = {"steps": (Annotated[int, AfterValidator(enough)], Field(steps, description="Denoising steps"))}
    if guidance is not None:
        least = 0.0 if negative_prompt is None else 1.0  # classifier-free guidance of 1 is none: half the forwards, another editor
        sampling["guidance"] = (float, Field(guidance, gt=least, description="Strength of the guidance"))
    if negative_prompt is not None:
        sampling["negative_prompt"] = (str, Field(negative_prompt, description="Text that classifier-free guidance leads away from"))
    return create_model("Settings", __base__=NativeSettings, **sampling)
