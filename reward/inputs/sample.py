"""One edit to be judged, and what can be wrong with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from PIL import Image


@runtime_checkable
class StoredImage(Protocol):
    """A reference to an encoded image, which is read each time it is needed. Equal references are the same image."""

    def read(self) -> bytes:
        """The encoded image. Raises ValueError, naming the file, when it is no longer there or has changed."""
        ...


EncodedImage = bytes | str | Path | StoredImage
"""An encoded image, or where it is: a path, or another reference."""
ImageInput = EncodedImage | Image.Image
"""An encoded image, where it is, or a decoded one."""


@dataclass(frozen=True)
class EditSample:
    """A source image, the instruction given for it, and the edited image: encoded bytes, a path or another reference, or a Pillow image."""

    source: ImageInput
    instruction: str
    edited: ImageInput


class SampleError(ValueError):
    """A sample that cannot be judged, with the reason in one sentence."""


class ImageError(SampleError):
    """An image that cannot be decoded or resized."""


class InstructionError(SampleError):
    """An instruction that cannot be shown to the model."""
