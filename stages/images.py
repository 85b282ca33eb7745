"""Encoded images: what they are, and lossless encoding of what we draw ourselves."""

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


def pixels(data: bytes) -> np.ndarray:
    """RGB uint8 [height, width, 3] of an encoded image, fully decoded. Raises ``ValueError`` when that fails."""
    try:
        with Image.open(io.BytesIO(data)) as image:
            return np.asarray(image.convert("RGB"))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"the image does not decode ({error})") from None


def stored(data: bytes, path: str | None = None) -> dict[str, Any]:
    """Value of an image column."""
    return {"bytes": data, "path": path}
