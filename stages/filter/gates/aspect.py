"""Gate: the edit has another shape than its source. Value: ratio of the two aspect ratios, the larger over the smaller; 1 is no change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from stages.filter.gates.gate import Finding, Gate, GateConfig, above

if TYPE_CHECKING:
    import pyarrow as pa


class AspectGate(GateConfig):
    """The edit has another shape than its source."""

    ratio: float = Field(1.1, ge=1, description="Caught above this ratio of the two aspect ratios")


def decide(inspected: pa.Table, config: AspectGate) -> Finding:
    """The shape changed."""
    import numpy as np

    source, edited = (
        inspected[f"{role}_width"].to_numpy().astype(np.float64) / inspected[f"{role}_height"].to_numpy() for role in ("source", "edited")
    )
    return above(np.maximum(source / edited, edited / source), config.ratio)


GATE = Gate(config=AspectGate, description="Edits in another shape", caption="edits in another shape, ratio", decide=decide)
