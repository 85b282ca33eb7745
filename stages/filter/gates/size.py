"""Gate: a side of either image is shorter or longer than allowed. Value: the shortest side in pixels; the longest where only that is at
fault."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from stages.filter.gates.gate import Finding, Gate, GateConfig

if TYPE_CHECKING:
    import pyarrow as pa

SIDES = ("source_width", "source_height", "edited_width", "edited_height")


class SizeGate(GateConfig):
    """A tiny or huge image."""

    shortest_side: int = Field(128, ge=1, description="Pixels that every side of both images has at least")
    longest_side: int = Field(8192, ge=1, description="Pixels that every side of both images has at most")


def decide(inspected: pa.Table, config: SizeGate) -> Finding:
    """Tiny or huge."""
    import numpy as np

    sides = np.stack([inspected[name].to_numpy().astype(np.float64) for name in SIDES], axis=1)  # [n, 4]
    shortest, longest = sides.min(axis=1), sides.max(axis=1)
    tiny, huge = shortest < config.shortest_side, longest > config.longest_side
    only_huge = huge & ~tiny
    values = np.where(only_huge, longest, shortest)
    return Finding(values, tiny | huge, np.where(only_huge, float(config.longest_side), float(config.shortest_side)))


GATE = Gate(config=SizeGate, description="Tiny and huge images", caption="tiny or huge images, pixels", decide=decide)
