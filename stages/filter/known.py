"""What earlier phases found out about edits, as text for the JSON of their samples in shards."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import groupby, repeat
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


def by_place(rows: Iterable[pa.RecordBatch]) -> Iterator[list[dict[str, Any]]]:
    """For every place from 0 on, without end, the rows about the sample there. ``rows`` are in the order of their samples' places."""
    following = 0
    for place, found in groupby((row for batch in rows for row in batch.to_pylist()), itemgetter(PLACE)):
        yield from repeat([], place - following)
        yield [*found]
        following = place + 1
    yield from repeat([])


def texts(samples: pa.Table, gates: Iterator[list[dict[str, Any]]], matches: Iterator[list[dict[str, Any]]]) -> pa.Array:
    """What is known of samples, with their :data:`MEASURES`, as JSON text each: ``measures``, ``gates`` (value and threshold of those that
    flag it) and ``contamination`` (its matches). ``gates`` and ``matches`` are lists :func:`by_place` that go on with these samples."""
    known = [
        {
            "measures": measures,
            "gates": {row["gate"]: {"value": row["value"], "threshold": row["threshold"]} for row in next(gates)},
            "contamination": [{name: row[name] for name in OF_CONTAMINATION} for row in next(matches)],
        }
        for measures in samples.select(MEASURES).to_pylist()
    ]
    encode = json.JSONEncoder(sort_keys=True).encode
    return pa.array([encode(entry) for entry in known], pa.string())
