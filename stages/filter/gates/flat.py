"""Gate: the edited image, or a part of it, is blank.

Value ``flat_share``: share of the cells that have one and the same colour in the edited image, each of them flat, and are not flat cells of
that colour in the source. So a white background that was there before does not count. Where nearly all cells have one colour on average,
with noise or without, and did not before, it is their share. Caught above the threshold. An instruction that asks for a plain background or
an empty picture explains a part, but not all of it: there only a value above ``ALL`` counts, and the value is null otherwise.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pydantic import Field

from stages.filter.gates.gate import Gate, GateConfig, above

if TYPE_CHECKING:
    import numpy as np

    from stages.filter.pair import Pair

FLAT = 3.0
"""Largest difference (0..255) within a flat cell, and between cells of one colour; twice as large between all cells with noise."""
ALL = 0.95
"""A larger share of the cells is the whole picture."""
_PLAIN = re.compile(
    r"\b(?:background|backdrop|plain|solid|blank|empty|white|black|cut ?out|isolate[ds]?|transparent|mask|silhouette|segment\w*|depth"
    r"|edges?|sketch|line ?art|outlines?)\b|背景|纯色|空白|白色|黑色|抠图|线稿|轮廓"
)


class FlatGate(GateConfig):
    """The edit is blank, as a whole or in part."""

    share: float = Field(0.25, ge=0, le=1, description="Caught above this share of the picture that became one flat colour")


def measure(pair: Pair) -> dict[str, float | int | None]:
    """The flat share."""
    share = _share(pair)
    return {"flat_share": None if share <= ALL and _PLAIN.search(pair.words) else share}


def _share(pair: Pair) -> float:
    import numpy as np

    from reward.inputs.cells import ranges

    evenly = [_near(cells, np.median(cells, axis=(0, 1)), 2 * FLAT).mean() for cells in (pair.edited_cells, pair.source_cells)]
    if evenly[0] > ALL >= evenly[1]:
        return float(evenly[0])
    now = ranges(pair.small_edited, pair.cell).max(axis=2) <= FLAT  # [rows, columns]
    if not now.any():
        return 0.0
    was = ranges(pair.small_source, pair.cell).max(axis=2) <= FLAT
    colour = pair.edited_cells[now]  # [flat cells, 3]
    keys, place = np.unique((colour // (2 * FLAT)).astype(np.int64) @ [1 << 20, 1 << 10, 1], return_inverse=True)
    most = np.median(colour[place == np.bincount(place, minlength=len(keys)).argmax()], axis=0)
    there, here = (_near(cells, most, FLAT) for cells in (pair.source_cells, pair.edited_cells))
    return float((now & here & ~(was & there)).mean())


def _near(cells: np.ndarray, colour: np.ndarray, most: float) -> np.ndarray:
    """Which cells have nearly a colour on average, bool [rows, columns]."""
    return abs(cells - colour).max(axis=2) <= most


GATE = Gate(
    revision=2,
    config=FlatGate,
    description="Blank pictures",
    caption="pictures that became one flat colour, share",
    columns={"flat_share": "float64"},
    measure=measure,
    decide=lambda config: above("flat_share", config.share),
)
