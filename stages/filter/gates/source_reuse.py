"""Gate: one source image has many edits in the data set, so that a model trained on it sees that picture too often.

Value: number of this edit among those of its source (equal image bytes), counted from 1 in the order of the data set. The first ones are
kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from stages.filter.gates.gate import Finding, Gate, GateConfig, above

if TYPE_CHECKING:
    import pyarrow as pa


class SourceReuseGate(GateConfig):
    """One source with many edits."""

    edits: int = Field(10, ge=1, description="Edits of one source that may stay, the first ones of the data set")


def decide(inspected: pa.Table, config: SourceReuseGate) -> Finding:
    """More edits of one source than allowed."""
    import numpy as np

    from stages.filter.selection.order import rank_within

    codes = inspected["source_sha256"].combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    return above((rank_within(codes) + 1).astype(np.float64), config.edits)


GATE = Gate(
    config=SourceReuseGate,
    description="Sources with many edits",
    caption="sources with many edits, which edit",
    compares=True,
    decide=decide,
)
