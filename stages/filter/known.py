"""What earlier phases found out about edits, as text for the JSON of their samples in shards."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.engine import contracts
from stages.filter.decide import INSPECTED

MEASURES = [name for name in INSPECTED.names if name.endswith(("_width", "_height")) or name not in contracts.INSPECTED.names]
"""Columns of ``inspected`` that go into the JSON of a sample: sizes, and what the gates measured."""
OF_CONTAMINATION = [name for name in contracts.CONTAMINATION.names if name != "sample_id"]


@dataclass(frozen=True)
class Known:
    """What earlier phases found out about the edits: tables of the contracts ``inspected``, ``gated`` and ``contamination``; of the first
    the columns ``sample_id`` and :data:`MEASURES`."""

    inspected: pa.Table
    gated: pa.Table
    contamination: pa.Table

    def texts(self, ids: pa.ChunkedArray, parts: Iterable[tuple[int, int]]) -> Iterator[pa.Array]:
        """For each part (its first place in ``ids``, and the place after its last) what is known of its samples, as JSON text each:
        ``measures``, ``gates`` (value and threshold of those that flag it) and ``contamination`` (its matches).

        The tables are searched once for all parts.
        """
        inspected = self.inspected.combine_chunks()
        places = pc.index_in(ids.combine_chunks(), value_set=inspected["sample_id"].combine_chunks())
        gates, matches = _Rows(self.gated, ids), _Rows(self.contamination, ids)
        for first, last in parts:
            measures = inspected.select(MEASURES).take(places.slice(first, last - first)).to_pylist()
            known = [
                {
                    "measures": found,
                    "gates": {row["gate"]: {"value": row["value"], "threshold": row["threshold"]} for row in caught},
                    "contamination": [{name: row[name] for name in OF_CONTAMINATION} for row in matched],
                }
                for found, caught, matched in zip(measures, gates.of(first, last), matches.of(first, last), strict=True)
            ]
            yield pa.array([json.dumps(entry, sort_keys=True) for entry in known], pa.string())


class _Rows:
    """Rows of a table by the places of their samples in ``ids``; those of one sample stay in their order."""

    def __init__(self, table: pa.Table, ids: pa.ChunkedArray) -> None:
        there = pc.index_in(table["sample_id"], value_set=ids.combine_chunks())
        places = pc.fill_null(there, len(ids)).to_numpy()
        order = np.argsort(places, kind="stable")
        self._rows = table.take(order).combine_chunks()
        self._ends = np.searchsorted(places[order], np.arange(len(ids) + 1))

    def of(self, first: int, last: int) -> list[list[dict[str, Any]]]:
        """The rows of each sample from place ``first`` to ``last - 1``."""
        ends = self._ends[first : last + 1]
        rows = self._rows.slice(ends[0], ends[-1] - ends[0]).to_pylist()
        return [rows[begin - ends[0] : end - ends[0]] for begin, end in pairwise(ends)]
