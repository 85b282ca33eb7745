"""One edit to be judged, and what can be wrong with it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EditSample:
    """A source image, the instruction given for it, and the edited image; images are encoded bytes as they came."""

    source: bytes
    instruction: str
    edited: bytes


class SampleError(ValueError):
    """A sample that cannot be judged, with the reason in one sentence."""


class ImageError(SampleError):
    """An image that cannot be decoded or resized."""


class InstructionError(SampleError):
    """An instruction that cannot be shown to the model."""
