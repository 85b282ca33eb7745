"""A scored edit for a gallery: source, edited image and their difference, its score, and its quality on the raters' scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from pipeline import words
from pipeline.report.blocks import Example, Picture
from pipeline.report.pictures import PREVIEW, SMALL, Originals, drawn, picture
from reward.inputs.decoding import decode
from reward.inputs.sample import ImageError

GAIN = 3
"""The difference is drawn so many times stronger, and cut at black."""


def triptych(row: Mapping[str, Any], scored: Mapping[str, Any], originals: Originals, truth: Mapping[str, float] | None = None) -> Example:
    """``row``: of the contract ``examples``; ``scored``: of ``scores``; ``truth``: ground-truth quality by dimension, where it is known."""
    source, edited, instruction = row["source"]["bytes"], row["edited"]["bytes"], row["instruction"]
    pictures = [
        picture(source, alt=f"source of: {instruction}", lines=("source",), originals=originals),
        picture(edited, alt=f"edited: {instruction}", lines=("edited",), originals=originals),
        difference(source, edited, instruction),
    ]
    predicted = {entry["dimension"]: entry["likert"] for entry in scored["dimensions"] if entry["likert"] is not None}
    names = [entry["dimension"] for entry in scored["dimensions"]]
    rows = [("ground truth", *(f"{truth[name]:g}" if name in truth else "–" for name in names))] if truth else []
    rows += [("predicted rating", *(words.score(predicted[name]) if name in predicted else "–" for name in names))] if predicted else []
    score = f"score {words.score(scored['overall_mean'])} ± {words.score(scored['overall_sigma'])}"
    return Example(instruction, pictures, score, flags(scored["flags"]), ("", *map(words.name, names)), rows)


def flags(names: Sequence[str]) -> str:
    """What is said of an edit that gates or contamination flagged; empty without flags."""
    return f"flags: {', '.join(map(words.name, names))}" if names else ""


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
    before.thumbnail((PREVIEW, PREVIEW), Image.Resampling.BOX)
    after = after.resize(before.size, Image.Resampling.BOX)
    change = np.abs(np.asarray(before, np.int16) - np.asarray(after, np.int16)).max(axis=2)  # [height, width], 0..255
    grey = Image.fromarray((255 - np.minimum(GAIN * change, 255)).astype(np.uint8))
    return drawn(grey, alt=alt, lines=(f"difference ×{GAIN}",), small=small)
