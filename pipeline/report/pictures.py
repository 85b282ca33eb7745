"""Images for the page, inside it as data URIs: small ones pixel by pixel, larger ones as previews."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

from PIL import Image

from pipeline.report.blocks import Picture
from reward.inputs.decoding import decode
from reward.inputs.sample import ImageError

SMALL = 128
"""Images up to this side are shown pixel by pixel, enlarged without smoothing."""
PREVIEW = 256
"""Longest side of the preview of a larger image."""


def picture(data: bytes | None, *, alt: str, lines: Sequence[str] = (), side: int = PREVIEW) -> Picture:
    """A picture of encoded image bytes, at most ``side`` pixels long. Its lines say where there is no image or none that decodes."""
    if not data:
        return Picture(None, alt, (*lines, "no image"))
    try:
        shown = decode(data)
    except ImageError:
        return Picture(None, alt, (*lines, "the image does not decode"))
    small = max(shown.size) <= SMALL
    shown.thumbnail((side, side), Image.Resampling.LANCZOS)
    return drawn(shown, alt=alt, lines=lines, small=small)


def drawn(image: Image.Image, *, alt: str, lines: Sequence[str], small: bool) -> Picture:
    """A picture of pixels: of a ``small`` image as PNG and pixel by pixel, else as JPEG."""
    kind, buffer = "PNG" if small else "JPEG", io.BytesIO()
    image.save(buffer, kind, quality=80)
    uri = f"data:image/{kind.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"
    return Picture(uri, alt, tuple(lines), pixelated=small, width=image.width, height=image.height)
