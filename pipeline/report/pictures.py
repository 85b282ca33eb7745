"""Images for the page, inside it as data URIs: small ones as they are, larger ones as previews."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

from PIL import Image

from pipeline.report.blocks import Picture

SMALL = 128
"""Images up to this side are shown pixel by pixel, enlarged without smoothing."""
PREVIEW = 256
"""Longest side of the preview of a larger image."""


def picture(data: bytes | None, *, alt: str, lines: Sequence[str] = (), badge: str = "", large: bool = False) -> Picture:
    """A picture of encoded image bytes; without bytes, or with bytes that do not decode, a picture that says so."""
    if not data:
        return Picture(None, alt, (*lines, "no image"), badge=badge, large=large)
    try:
        with Image.open(io.BytesIO(data)) as image:
            small = max(image.size) <= SMALL
            if small and image.format == "PNG":
                encoded = data
            else:
                encoded = _encoded(image, small)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return Picture(None, alt, (*lines, "the image does not decode"), badge=badge, large=large)
    kind = "png" if small else "jpeg"
    uri = f"data:image/{kind};base64,{base64.b64encode(encoded).decode()}"
    return Picture(uri, alt, tuple(lines), pixelated=small, badge=badge, large=large)


def _encoded(image: Image.Image, small: bool) -> bytes:
    buffer = io.BytesIO()
    colours = image.convert("RGB")
    if small:
        colours.save(buffer, "PNG")
    else:
        colours.thumbnail((PREVIEW, PREVIEW), Image.Resampling.LANCZOS)
        colours.save(buffer, "JPEG", quality=80)
    return buffer.getvalue()
