"""Images for the page, inside it as data URIs: small ones pixel by pixel, larger ones as previews."""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from PIL import Image

from pipeline.report.blocks import Picture
from reward.inputs.decoding import decode
from reward.inputs.sample import ImageError
from stages.engine import storage

SMALL = 128
"""Images up to this side are shown pixel by pixel, enlarged without smoothing."""
PREVIEW = 256
"""Longest side of the preview of a larger image."""
DIGITS = 16
"""Digits of the sha256 in the name of an image in full size."""


def picture(data: bytes | None, *, alt: str, lines: Sequence[str] = (), side: int = PREVIEW, originals: Originals | None = None) -> Picture:
    """A picture of encoded image bytes, at most ``side`` pixels long. Its lines say where there is no image or none that decodes.

    With ``originals`` it links to the image in full size.
    """
    if not data:
        return Picture(None, alt, (*lines, "no image"))
    try:
        shown = decode(data)
    except ImageError:
        return Picture(None, alt, (*lines, "the image does not decode"))
    small = max(shown.size) <= SMALL
    shown.thumbnail((side, side), Image.Resampling.LANCZOS)
    return replace(drawn(shown, alt=alt, lines=lines, small=small), full=originals.add(data) if originals else "")


class Originals:
    """Images in full size in a folder beside the page, named by their content. The page is readable without them."""

    def __init__(self, page: Path) -> None:
        self.folder = page.with_name(f"{page.stem}-images")
        self._files: dict[str, bytes] = {}

    @property
    def name(self) -> str:
        """Name of the folder; empty while no image was taken in."""
        return self.folder.name if self._files else ""

    def add(self, data: bytes) -> str:
        """Take in an image that decodes; returns its address relative to the page."""
        with Image.open(io.BytesIO(data)) as image:
            name = f"{hashlib.sha256(data).hexdigest()[:DIGITS]}.{(image.format or 'image').lower()}"
        self._files[name] = data
        return f"{self.folder.name}/{name}"

    def write(self) -> None:
        """Write the images that are not there, and remove those that an earlier page linked to."""
        there = {path.name: path for path in self.folder.glob("[0-9a-f]" * DIGITS + ".*")} if self.folder.is_dir() else {}
        for name, path in there.items():
            if name not in self._files:
                path.unlink()
        for name, data in self._files.items():
            if name not in there:
                storage.publish_bytes(self.folder / name, data)


def drawn(image: Image.Image, *, alt: str, lines: Sequence[str], small: bool) -> Picture:
    """A picture of pixels: of a ``small`` image as PNG and pixel by pixel, else as JPEG."""
    kind, buffer = "PNG" if small else "JPEG", io.BytesIO()
    image.save(buffer, kind, quality=80)
    uri = f"data:image/{kind.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"
    return Picture(uri, alt, tuple(lines), pixelated=small, width=image.width, height=image.height)
