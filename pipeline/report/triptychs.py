"""Source, edited image and their difference side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from PIL import Image

from pipeline.report.blocks import Picture, Strip
from pipeline.report.pictures import SMALL, drawn, picture
from reward.inputs.decoding import decode
from reward.inputs.sample import ImageError

SIDE = 160
"""Longest side of a preview in a triptych."""
GAIN = 3
"""The difference is drawn so many times stronger, and cut at black."""


def triptych(row: Mapping[str, Any], facts: str) -> Strip:
    """The three pictures under the instruction, with a line of facts. ``row``: of the contract ``examples``."""
    source, edited, instruction = row["source"]["bytes"], row["edited"]["bytes"], row["instruction"]
    pictures = [
        picture(source, alt=f"source of: {instruction}", lines=("source",), side=SIDE),
        picture(edited, alt=f"edited: {instruction}", lines=("edited",), side=SIDE),
        difference(source, edited, instruction),
    ]
    return Strip(instruction, pictures, facts)


def difference(source: bytes, edited: bytes, instruction: str) -> Picture:
    """Where the two images differ: white is equal, black is a difference of 255 / ``GAIN`` or more in a channel.

    The edited image takes the source's shape, as the filter measures the change. Of large images the previews are compared.
    """
    alt = f"difference of source and edited: {instruction}"
    try:
        before, after = decode(source), decode(edited)
    except ImageError:
        return Picture(None, alt, ("difference", "an image does not decode"))
    small = max(before.size) <= SMALL
    before.thumbnail((SIDE, SIDE), Image.Resampling.BOX)
    after = after.resize(before.size, Image.Resampling.BOX)
    change = np.abs(np.asarray(before, np.int16) - np.asarray(after, np.int16)).max(axis=2)  # [height, width], 0..255
    grey = Image.fromarray((255 - np.minimum(GAIN * change, 255)).astype(np.uint8))
    return drawn(grey, alt=alt, lines=(f"difference ×{GAIN}",), small=small)
