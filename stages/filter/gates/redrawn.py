"""Gate: all of the picture was drawn anew, not only what the instruction names.

An editor that decodes the whole picture again loses or moves its fine structure, even where every colour stays. Value
``background_match``: correlation of the brightness gradients of source and edited image over that half of the cells which changed least,
at the small size; 1 where nothing changed there, about 0.9 after another size or encoding, near 0 where contours moved. Caught below the
threshold. Null for an instruction that asks for a change of the whole picture, and where that half has no gradients.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pydantic import Field

from stages.filter.gates.gate import Gate, GateConfig, below

if TYPE_CHECKING:
    import numpy as np

    from stages.filter.pair import Pair


class RedrawnGate(GateConfig):
    """All of the picture was drawn anew."""

    match: float = Field(0.75, ge=-1, le=1, description="Caught below this correlation of contours where the picture changed least")


def measure(pair: Pair) -> dict[str, float | int | None]:
    """The match outside the edit, -1..1."""
    return {"background_match": None if pair.whole_picture else _match(pair)}


def _match(pair: Pair) -> float | None:
    import numpy as np

    change = pair.change.max(axis=2)  # [rows, columns]
    least = pair.spread(change <= np.median(change))  # [rows * cell, columns * cell]
    source, edited = (_gradients(small, least) for small in (pair.small_source, pair.small_edited))
    power = float(source @ source) * float(edited @ edited)
    return float(source @ edited) / math.sqrt(power) if power > 0 else None


def _gradients(small: np.ndarray, where: np.ndarray) -> np.ndarray:
    """Brightness steps to the right and down at the marked pixels: [height, width, 3], bool [rows, columns] -> float64 [2 n]."""
    import numpy as np

    from reward.inputs.cells import brightness

    grey = brightness(small[: where.shape[0], : where.shape[1]].astype(np.float64))
    right, down = np.diff(grey, axis=1, append=grey[:, -1:]), np.diff(grey, axis=0, append=grey[-1:])
    return np.concatenate([right[where], down[where]])


GATE = Gate(
    config=RedrawnGate,
    description="Pictures drawn anew as a whole",
    caption="contours changed outside the edit, match −1–1",
    columns={"background_match": "float64"},
    measure=measure,
    decide=lambda config: below("background_match", config.match),
)
