"""Gate: the colours changed outside the edit.

Value ``background_change``: the median change (0..255) of that half of the cells which changed least, that is the first quartile. Caught
above the threshold. Null for an instruction that asks for a change of the whole picture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from stages.filter.gates.gate import Gate, GateConfig, above

if TYPE_CHECKING:
    from stages.filter.pair import Pair


class DriftGate(GateConfig):
    """The colours changed outside the edit."""

    change: float = Field(5.0, ge=0, le=255, description="Caught when the half that changed least changed by more in the median (0..255)")


def measure(pair: Pair) -> dict[str, float | int | None]:
    """The change of the background."""
    import numpy as np

    return {"background_change": None if pair.whole_picture else float(np.quantile(pair.change.max(axis=2), 0.25))}


GATE = Gate(
    config=DriftGate,
    description="Colours that changed outside the edit",
    caption="colours changed outside the edit, 0–255",
    columns={"background_change": "float64"},
    measure=measure,
    decide=lambda inspected, config: above(inspected["background_change"].to_numpy(), config.change),
)
