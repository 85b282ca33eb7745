"""Gate: the edit has another shape than its source. Value: ratio of the two aspect ratios, the larger over the smaller; 1 is no change."""

from __future__ import annotations

from pydantic import Field

from stages.filter.gates.gate import Gate, GateConfig, above


class AspectGate(GateConfig):
    """The edit has another shape than its source."""

    ratio: float = Field(1.1, ge=1, description="Caught above this ratio of the two aspect ratios")


SOURCE, EDITED = (f"({role}_width::DOUBLE / {role}_height)" for role in ("source", "edited"))
"""The aspect ratios."""
GATE = Gate(
    config=AspectGate,
    description="Edits in another shape",
    caption="edits in another shape, ratio",
    decide=lambda config: above(f"greatest({SOURCE} / {EDITED}, {EDITED} / {SOURCE})", config.ratio),
)
