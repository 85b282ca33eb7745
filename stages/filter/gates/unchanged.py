"""Gate: the edited image is the source, perhaps encoded again.

Value ``largest_change``: mean change (0..255) of the four cells that changed most, of about 4,096. So an object of a few hundredths of the
picture's side still counts in full. Caught below the threshold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from stages.filter.gates.gate import Gate, GateConfig, below

if TYPE_CHECKING:
    from stages.filter.pair import Pair


class UnchangedGate(GateConfig):
    """The edit is its source, perhaps encoded again."""

    change: float = Field(15.0, ge=0, le=255, description="Caught when the cells that changed most changed by less (0..255)")


def measure(pair: Pair) -> dict[str, float | int | None]:
    """The largest change."""
    from reward.inputs.cells import largest_change

    return {"largest_change": largest_change(pair.change)}


GATE = Gate(
    config=UnchangedGate,
    description="Copies of the source",
    caption="copies of the source, change 0–255",
    columns={"largest_change": "float64"},
    measure=measure,
    decide=lambda inspected, config: below(inspected["largest_change"].to_numpy(), config.change),
)
