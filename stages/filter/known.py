"""What earlier phases found out about edits, as text for the JSON of their samples in shards."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa

from stages.engine import contracts
from stages.engine.tables import PLACE
from stages.filter.schemas import INSPECTED

MEASURES = [name for name in INSPECTED.names if name.endswith(("_width", "_height")) or name not in contracts.INSPECTED.names]
"""Columns of ``inspected`` that go into the JSON of a sample: sizes, and what the gates measured."""
OF_GATES = ["gate", "value", "threshold"]
OF_CONTAMINATION = [name for name in contracts.CONTAMINATION.names if name != "sample_id"]


class Found:
    """Rows that say something about samples, each with the place of its sample among all, which is asked for from the first to the last."""

    def __init__(self, rows: Iterator[pa.RecordBatch]) -> None:
        self._by_place = groupby((row for batch in rows for row in batch.to_pylist()), itemgetter(PLACE))
        self._next: tuple[int, list[dict[str, Any]]] | None = None
        self._advance()

    def of(self, place: int) -> list[dict[str, Any]]:
        """Those about the sample at a place, in their order."""
        if self._next is None or self._next[0] != place:
            return []
        found = self._next[1]
        self._advance()
        return found

    def _advance(self) -> None:
        self._next = next(((place, list(rows)) for place, rows in self._by_place), None)


def texts(samples: pa.Table, gates: Found, matches: Found) -> pa.Array:
    """What is known of samples, with their :data:`PLACE` and :data:`MEASURES`, as JSON text each: ``measures``, ``gates`` (value and
    threshold of those that flag it) and ``contamination`` (its matches)."""
    known = [
        {
            "measures": measures,
            "gates": {row["gate"]: {"value": row["value"], "threshold": row["threshold"]} for row in gates.of(place)},
            "contamination": [{name: row[name] for name in OF_CONTAMINATION} for row in matches.of(place)],
        }
        for place, measures in zip(samples[PLACE].to_pylist(), samples.select(MEASURES).to_pylist(), strict=True)
    ]
    encode = json.JSONEncoder(sort_keys=True).encode
    return pa.array([encode(entry) for entry in known], pa.string())
