"""Gate: the edited image, or a part of it, is blank.

Value ``flat_share``: share of the cells that have one and the same colour in the edited image, each of them flat, and are not flat cells of
that colour in the source. So a white background that was there before does not count. Where nearly all cells have one colour on average,
with noise or without, and did not before, it is their share. A part that became noise around one colour counts as a flat one: there
neighbouring pixels differ as much as any two, which grass, snow or sand in a photograph do not. Caught above the threshold. An instruction
that asks for a plain background or an empty picture explains a part, but not all of it: there only a value above ``ALL`` counts, and the
value is null otherwise.
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
NOISE = 1.85
"""Least mean square of the difference of neighbours in a cell over the cell's variance: about 2.1 in noise, less in texture."""
ALL = 0.95
"""A larger share of the cells is the whole picture."""
_PLAIN = re.compile(
    r"\b(?:background|backdrop|plain|solid|blank|empty|white|black|cut ?out|isolate[ds]?|transparent|mask|silhouette|segment\w*|depth"
    r"|edges?|sketch|line ?art|outlines?)\b|背景|纯色|空白|白色|黑色|抠图|线稿|轮廓"
)


class FlatGate(GateConfig):
    """The edit is blank, as a whole or in part."""

    share: float = Field(
        0.25, ge=0, le=1, description="Caught above this share of the picture that became one flat colour, or noise around one"
    )


def measure(pair: Pair) -> dict[str, float | int | None]:
    """The flat share."""
    share = _share(pair)
    return {"flat_share": None if share <= ALL and _PLAIN.search(pair.words) else share}


def _share(pair: Pair) -> float:
    import numpy as np

    evenly = [_near(cells, np.median(cells, axis=(0, 1)), 2 * FLAT).mean() for cells in (pair.edited_cells, pair.source_cells)]
    if evenly[0] > ALL >= evenly[1]:
        return float(evenly[0])
    return max(_flat(pair), _noise(pair))


def _flat(pair: Pair) -> float:
    """Share of the cells that became flat, of one colour."""
    from reward.inputs.cells import ranges

    now = ranges(pair.small_edited, pair.cell).max(axis=2) <= FLAT  # [rows, columns]
    if not now.any():
        return 0.0
    was = ranges(pair.small_source, pair.cell).max(axis=2) <= FLAT
    most = _commonest(pair.edited_cells[now])
    there, here = (_near(cells, most, FLAT) for cells in (pair.source_cells, pair.edited_cells))
    return float((now & here & ~(was & there)).mean())


def _noise(pair: Pair) -> float:
    """Share of the cells that became noise around one colour, each seen with the cells around it."""
    from reward.inputs.cells import CELL

    if pair.cell < CELL:
        return 0.0
    now = _is_noise(pair.edited_brightness)  # [rows, columns]
    if not now.any():
        return 0.0
    here, there = map(_around, (pair.edited_cells, pair.source_cells))
    most = _commonest(here[now])
    return float((now & _near(here, most, 2 * FLAT) & ~(_is_noise(pair.source_brightness) & _near(there, most, 2 * FLAT))).mean())


def _is_noise(brightness: np.ndarray) -> np.ndarray:
    """Which cells are noise of more than two levels, with the cells around them: bool [rows, columns]."""
    from reward.inputs.cells import CELL, blocks

    squares = blocks(brightness[..., None], CELL)
    squares = squares.reshape(*squares.shape[:2], CELL, CELL)
    across, down = ((squares[..., 1:] - squares[..., :-1]) ** 2, (squares[..., 1:, :] - squares[..., :-1, :]) ** 2)
    variance = squares.var(axis=(2, 3))
    ratio = (across.mean(axis=(2, 3)) + down.mean(axis=(2, 3))) / (2 * variance + 1e-6)
    return (_around(ratio) > NOISE) & (_around(variance) > 4)


def _around(values: np.ndarray) -> np.ndarray:
    """Means over each cell and the two on every side of it: [rows, columns, ...] -> the same shape."""
    import numpy as np

    rows, columns = values.shape[:2]
    padded = np.pad(values, [(2, 2), (2, 2), *[(0, 0)] * (values.ndim - 2)], mode="edge")
    tall = np.sum([padded[down : down + rows] for down in range(5)], axis=0)
    return np.sum([tall[:, right : right + columns] for right in range(5)], axis=0) / 25


def _commonest(colours: np.ndarray) -> np.ndarray:
    """The most frequent of colours [n, 3], within two steps of ``FLAT``."""
    import numpy as np

    keys, place = np.unique((colours // (2 * FLAT)).astype(np.int64) @ [1 << 20, 1 << 10, 1], return_inverse=True)
    return np.median(colours[place == np.bincount(place, minlength=len(keys)).argmax()], axis=0)


def _near(cells: np.ndarray, colour: np.ndarray, most: float) -> np.ndarray:
    """Which cells have nearly a colour on average, bool [rows, columns]."""
    return abs(cells - colour).max(axis=2) <= most


GATE = Gate(
    revision=3,
    config=FlatGate,
    description="Blank pictures",
    caption="pictures that became one flat colour or noise, share",
    columns={"flat_share": "float64"},
    measure=measure,
    decide=lambda config: above("flat_share", config.share),
)
