"""Gate: one source image has many edits in the data set, so that a model trained on it sees that picture too often.

Value: number of this edit among those of its source (equal image bytes), counted from 1 in the order of the data set. The first ones are
kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from stages.filter.gates.gate import SEEN, Gate, GateConfig

if TYPE_CHECKING:
    from stages.engine.tables import Tables


class SourceReuseGate(GateConfig):
    """One source with many edits."""

    edits: int = Field(10, ge=1, description="Edits of one source that may stay, the first ones of the data set")


def compare(_: Tables, config: SourceReuseGate) -> str:
    """The number of each edit among those of its source."""
    counted = f"SELECT number, row_number() OVER (PARTITION BY source_sha256 ORDER BY number) AS place FROM {SEEN}"
    return f"SELECT number, place::DOUBLE AS value, place > {config.edits} AS caught, {config.edits}::DOUBLE AS threshold FROM ({counted})"


GATE = Gate(
    config=SourceReuseGate,
    description="Sources with many edits",
    caption="sources with many edits, which edit",
    compare=compare,
    reads=("source_sha256",),
)
