"""Source, edited image and their difference side by side."""

from __future__ import annotations

import numpy as np
from PIL import Image

from pipeline.report.blocks import Picture, Strip
from pipeline.report.edited_images import EditedImages
from pipeline.report.pictures import SMALL, encoded, picture
from reward.inputs.decoding import decode
from reward.inputs.sample import ImageError

SIDE = 160
"""Longest side of a preview in a triptych."""
GAIN = 3
"""The difference is drawn so many times stronger, and cut at black."""


def triptych(images: EditedImages, facts: str) -> Strip:
    """The three pictures under the instruction, with a line of facts."""
    pictures = [
        picture(images.source, alt=f"source of: {images.instruction}", lines=("source",), side=SIDE),
        picture(images.edited, alt=f"edited: {images.instruction}", lines=("edited",), side=SIDE),
        difference(images),
    ]
    return Strip(images.instruction, pictures, facts)


def difference(images: EditedImages) -> Picture:
    """Where the two images differ: white is equal, black is a difference of 255 / ``GAIN`` or more in a channel.

    The edited image takes the source's shape, as the filter measures the change. Of large images the previews are compared.
    """
    alt = f"difference of source and edited: {images.instruction}"
    try:
        source, edited = (decode(data) for data in (images.source, images.edited))
    except ImageError:
        return Picture(None, alt, ("difference", "an image does not decode"))
    small = max(source.size) <= SMALL
    source.thumbnail((SIDE, SIDE), Image.Resampling.BOX)
    edited = edited.resize(source.size, Image.Resampling.BOX)
    change = np.abs(np.asarray(source, np.int16) - np.asarray(edited, np.int16)).max(axis=2)  # [height, width], 0..255
    drawn = Image.fromarray((255 - np.minimum(GAIN * change, 255)).astype(np.uint8))
    uri = encoded(drawn, "PNG" if small else "JPEG")
    return Picture(uri, alt, (f"difference ×{GAIN}",), pixelated=small, width=drawn.width, height=drawn.height)
