"""Two gates on the sizes of the images: tiny or huge ones, and an edit in another shape than its source."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from stages.filter.gates.config import AspectGate, SizeGate
from stages.filter.gates.finding import Finding, above

SIDES = ("source_width", "source_height", "edited_width", "edited_height")


def size(inspected: pa.Table, config: SizeGate) -> Finding:
    """A side of either image is shorter or longer than allowed. Value: the shortest side in pixels, or the longest where that is the
    fault."""
    sides = np.stack([inspected[name].to_numpy().astype(np.float64) for name in SIDES], axis=1)  # [n, 4]
    shortest, longest = sides.min(axis=1), sides.max(axis=1)
    tiny, huge = shortest < config.shortest_side, longest > config.longest_side
    values = np.where(huge & ~tiny, longest, shortest)
    return Finding(values, tiny | huge, np.where(huge & ~tiny, float(config.longest_side), float(config.shortest_side)))


def aspect(inspected: pa.Table, config: AspectGate) -> Finding:
    """The shape changed. Value: ratio of the two aspect ratios, the larger over the smaller; 1 is no change."""
    source, edited = (
        inspected[f"{role}_width"].to_numpy().astype(np.float64) / inspected[f"{role}_height"].to_numpy() for role in ("source", "edited")
    )
    return above(np.maximum(source / edited, edited / source), config.ratio)
