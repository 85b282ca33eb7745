"""Gate: an enlarged thumbnail, which has more pixels than detail.

Enlarging adds no frequencies: above the limit of the original size the spectrum is nearly empty. Value ``fine_detail``, of
the poorer of the two images: log10 of the mean power at 0.5 to 0.75 of the Nyquist frequency over that at 0.15 to 0.4, on the brightness
of the central 512 x 512 pixels at full size. Photographs, whose power falls with the square of the frequency, are near -1 to -2. Caught
below the threshold. Null where either side of an image is too short to measure.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pydantic import Field

from stages.filter.gates.gate import Gate, GateConfig, below

if TYPE_CHECKING:
    from PIL import Image

    from stages.filter.pair import Pair

WINDOW = 512
SHORTEST = 64
FINE, COARSE = (0.5, 0.75), (0.15, 0.4)
"""Bands of the spectrum, in parts of the Nyquist frequency of the faster of the two axes."""
FLOOR = 1e-6
"""Power that no image goes below: what rounding to 8 bits leaves is far above it, and a blank image has no spectrum."""


class UpscaledGate(GateConfig):
    """An enlarged thumbnail."""

    detail: float = Field(-1.85, description="Caught below this log10 of fine over coarse power")


def measure(pair: Pair) -> dict[str, float | int | None]:
    """Fine detail of the poorer image."""
    found = [detail(picture) for picture in (pair.source.grey, pair.edited.grey)]
    known = [value for value in found if value is not None]
    return {"fine_detail": min(known) if len(known) == len(found) else None}


def detail(picture: Image.Image) -> float | None:
    """log10 of fine over coarse power of a grey image; None for one that is small or blank."""
    import numpy as np
    from scipy.fft import rfft2

    width, height = (min(WINDOW, side) for side in picture.size)
    if min(height, width) < SHORTEST:
        return None
    left, top = (picture.width - width) // 2, (picture.height - height) // 2
    grey = np.asarray(picture.crop((left, top, left + width, top + height)), dtype=np.float32)
    # The window function keeps the jump between opposite borders, which every picture has, from looking like fine detail
    grey = (grey - grey.mean()) * np.hanning(height)[:, None].astype(np.float32) * np.hanning(width)[None].astype(np.float32)
    power = np.square(np.abs(rfft2(grey)))  # [height, width // 2 + 1]
    down, across = np.abs(np.fft.fftfreq(height)) * 2, np.fft.rfftfreq(width) * 2
    frequency = np.maximum(down[:, None], across[None])
    fine, coarse = (float(power[(frequency >= low) & (frequency < high)].mean()) for low, high in (FINE, COARSE))
    return math.log10((fine + FLOOR) / coarse) if coarse > FLOOR else None


GATE = Gate(
    config=UpscaledGate,
    description="Enlarged thumbnails",
    caption="enlarged thumbnails, log power",
    columns={"fine_detail": "float64"},
    measure=measure,
    decide=lambda config: below("fine_detail", config.detail),
)
