"""Encoded images: their format, decoding, and lossless encoding of synthetic ones."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image


def png(pixels: np.ndarray) -> bytes:
    """PNG of a uint8 [height, width, 3] image; equal pixels give equal bytes for one Pillow version."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", compress_level=3)
    return buffer.getvalue()


def extension(data: bytes) -> str | None:
    """Name extension of an encoded image by its first bytes: png, jpg or webp; None for anything else."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "png"
    if data.startswith(b"\xff\xd8\xff"):
        return "jpg"
    return "webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None


def stored(data: bytes, path: str | None = None) -> dict[str, Any]:
    """Value of an image column."""
    return {"bytes": data, "path": path}
