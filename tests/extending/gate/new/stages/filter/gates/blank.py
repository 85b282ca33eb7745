"""Gate: the edited image is one colour. Value ``edited_contrast``: standard deviation of its pixels, 0..255. Caught below the threshold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from stages.filter.gates.gate import Gate, GateConfig, below

if TYPE_CHECKING:
    from stages.filter.pair import Pair


class BlankGate(GateConfig):
    """The edited image is one colour."""

    contrast: float = Field(2.0, ge=0, description="Caught below this standard deviation")


def measure(pair: Pair) -> dict[str, float | int | None]:
    """The contrast of the edited image."""
    return {"edited_contrast": float(pair.small_edited.std())}


GATE = Gate(
    config=BlankGate,
    description="Edits of one colour",
    caption="edits of one colour, deviation 0–255",
    columns={"edited_contrast": "float64"},
    measure=measure,
    decide=lambda config: below("edited_contrast", config.contrast),
)
