"""Gate: the edited image is the source, perhaps encoded again, moved by some pixels or mirrored.

Value: the smaller of ``largest_change`` and ``aligned_change``. ``largest_change`` is the mean change (0..255) of the four cells that
changed most, of about 4,096, so an object of a few hundredths of the picture's side still counts in full. ``aligned_change`` is the same
after the edited image was moved back: the best shift by phase correlation and a least-squares step below one pixel, as it is and mirrored,
without the outermost cells and those that the shift filled. It is null for an instruction that moves the picture, and for a picture that
is one pixel thin once shrunk. Caught below the threshold.

Source: C. D. Kuglin, D. C. Hines, The phase correlation image alignment method, 1975; B. D. Lucas, T. Kanade, An iterative image
registration technique, 1981.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import Field

from stages.filter.gates.gate import Gate, GateConfig, below

if TYPE_CHECKING:
    import numpy as np

    from stages.filter.pair import Pair

FURTHEST = 1 / 16
"""Largest shift that is looked for, as a share of the longest side."""
BOUND = 40.0
"""From here on the change of brightness alone, a lower bound of the change of colours, is the value: it is found in less time."""
_MOVES = re.compile(
    r"\b(?:rotat\w+|flip\w*|mirror\w*|reflect\w*|shift\w*|mov\w+|zoom\w*|crop\w*|expand\w*|extend\w*|view\w*|angle|camera|pan|tilt"
    r"|upside|invert\w*|revers\w*|degrees?|(?:counter)?clockwise)\b"
    r"|旋转|翻转|镜像|移动|放大|缩小|裁剪|扩展|视角|镜头|角度"
)


class UnchangedGate(GateConfig):
    """The edit is its source, perhaps encoded again."""

    change: float = Field(15.0, ge=0, le=255, description="Caught when the cells that changed most changed by less (0..255)")


def measure(pair: Pair) -> dict[str, float | int | None]:
    """The largest change, as the images are and after alignment."""
    from reward.inputs.cells import largest_change

    aligned = None
    if min(pair.small_source.shape[:2]) > 1 and not _MOVES.search(pair.words):
        aligned = min(_aligned(pair, 1), _aligned(pair, -1))
    return {"largest_change": largest_change(pair.change), "aligned_change": aligned}


def _aligned(pair: Pair, direction: int) -> float:
    """The largest change between the source and the edited image, mirrored where ``direction`` is -1, that is moved back first."""
    import numpy as np
    from scipy import fft

    from reward.inputs.cells import largest_change

    grey, other = pair.source_brightness, pair.edited_brightness[:, ::direction]
    cross = fft.rfft2(grey - grey.mean()) * np.conj(fft.rfft2(other - other.mean()))
    peaks = fft.irfft2(cross / np.maximum(np.abs(cross), 1e-9), s=grey.shape)  # the highest is at the shift
    reach = [np.minimum(np.arange(side), side - np.arange(side)) <= FURTHEST * max(peaks.shape) for side in peaks.shape]
    place = np.unravel_index(np.where(reach[0][:, None] & reach[1], peaks, -np.inf).argmax(), peaks.shape)
    shift = [int(at) if at <= side // 2 else int(at) - side for at, side in zip(place, peaks.shape, strict=True)]  # down and to the right
    other = np.roll(other, shift, axis=(0, 1))
    slopes = np.stack([slope.ravel() for slope in np.gradient(other)])  # down and to the right: [2, pixels]
    step = np.linalg.lstsq(slopes @ slopes.T, slopes @ (grey - other).ravel(), rcond=None)[0].clip(-1.0, 1.0)
    bound = largest_change(_inner(pair, grey[..., None], (other + (step @ slopes).reshape(other.shape))[..., None], shift))
    if bound >= BOUND:
        return bound
    moved = np.roll(pair.small_edited[:, ::direction], shift, axis=(0, 1))
    moved = moved + np.tensordot(step, np.stack(np.gradient(moved, axis=(0, 1))), axes=1)
    return largest_change(_inner(pair, pair.small_source, moved, shift))


def _inner(pair: Pair, source: np.ndarray, edited: np.ndarray, shift: Sequence[int]) -> np.ndarray:
    """Change of the cells without the outermost ones and without those that a shift (down, right) has filled from the other side.

    [height, width, channels] -> [rows, columns, channels].
    """
    import numpy as np

    from reward.inputs.cells import MOST_CHANGED_CELLS, cells

    change = np.abs(cells(source, pair.cell) - cells(edited, pair.cell))
    kept = [
        slice(1 + math.ceil(max(by, 0) / pair.cell), length - 1 - math.ceil(max(-by, 0) / pair.cell))
        for by, length in zip(shift, change.shape[:2], strict=True)
    ]
    inner = change[kept[0], kept[1]]
    return inner if inner[..., 0].size >= MOST_CHANGED_CELLS else change


GATE = Gate(
    config=UnchangedGate,
    description="Copies of the source",
    caption="copies of the source, change 0–255",
    columns={"largest_change": "float64", "aligned_change": "float64"},
    revision=2,
    measure=measure,
    decide=lambda config: below("least(largest_change, aligned_change)", config.change),  # of one that is not null
)
