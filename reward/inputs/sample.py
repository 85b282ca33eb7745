"""One edit to be judged, and what can be wrong with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from PIL import Image

ImageInput = bytes | str | Path | Image.Image
"""An encoded image, the path of one, or a decoded one."""


@dataclass(frozen=True)
class EditSample:
    """A source image, the instruction given for it, and the edited image: encoded bytes as they came, a path, or a Pillow image."""

    source: ImageInput
    instruction: str
    edited: ImageInput


class SampleError(ValueError):
    """A sample that cannot be judged, with the reason in one sentence."""


class ImageError(SampleError):
    """An image that cannot be decoded or resized."""


class InstructionError(SampleError):
    """An instruction that cannot be shown to the model."""
