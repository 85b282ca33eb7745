"""Pictures as a judge gets them: encoded in the format that the judge's settings name."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING, Literal

from PIL import Image

if TYPE_CHECKING:
    import numpy as np

Format = Literal["png", "jpeg"]
JPEG_QUALITY = 95


def encoded(pixels: np.ndarray, kind: Format) -> bytes:
    """uint8 [height, width, 3] as PNG, or as JPEG of quality 95 without chroma subsampling; equal pixels give equal bytes."""
    buffer = io.BytesIO()
    options = {"compress_level": 3} if kind == "png" else {"quality": JPEG_QUALITY, "subsampling": 0}
    Image.fromarray(pixels).save(buffer, kind.upper(), **options)
    return buffer.getvalue()


def data_url(data: bytes) -> str:
    """An encoded picture as the URL that chat endpoints take."""
    kind = "png" if data.startswith(b"\x89PNG") else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
