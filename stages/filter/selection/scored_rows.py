"""The scored edits of a run as rows that are never all in memory: read in batches, each with what other artifacts say of the same edits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from stages.datasets.slices import numbers_of
from stages.engine import storage, tables
from stages.engine.contracts import SCHEMAS
from stages.engine.rundir import Part, StepFolder
from stages.engine.tables import Tables

Read = Callable[[str, Sequence[str]], Iterator[pa.RecordBatch]]
"""Rows of an artifact with these columns, in the order of the data set."""


@dataclass(frozen=True)
class ScoredRows:
    """``count`` scored edits. ``tables``: where they are sorted and counted; ``artifacts``: those that ``read`` knows; ``flags``: that the
    scores can have. ``edits`` has the rows of ``scores``; ``inspected`` has them too, in the same order, and others between them."""

    tables: Tables
    read: Read
    count: int
    artifacts: frozenset[str] = frozenset({"scores", "edits"})
    flags: frozenset[str] = frozenset()

    @classmethod
    def of(cls, database: Tables, step: StepFolder, artifacts: dict[str, list[Part]], flags: frozenset[str] = frozenset()) -> Self:
        """Those that the parts of a filter step list."""
        read = reader(step, artifacts)
        return cls(database, read, sum(part.rows for part in artifacts["scores"]), frozenset(artifacts), flags)

    def batches(self, **columns: Sequence[str]) -> Iterator[dict[str, pa.Table]]:
        """The columns of each artifact named, for the same edits: tables of ``tables.BATCH_ROWS`` rows, by artifact."""
        inspected = columns.pop("inspected", [])
        if inspected:
            columns["edits"] = ["position", *(name for name in columns.get("edits", []) if name != "position")]
        streams = [self._tables(self.read(name, wanted)) for name, wanted in columns.items()]
        found = (dict(zip(columns, parts, strict=True)) for parts in zip(*streams, strict=True))
        return self._with_inspected(found, inspected) if inspected else found

    @staticmethod
    def _tables(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
        return storage.even(rows, tables.BATCH_ROWS)

    def _with_inspected(self, batches: Iterator[dict[str, pa.Table]], columns: Sequence[str]) -> Iterator[dict[str, pa.Table]]:
        """Rows of ``inspected`` beside those of the edits with their numbers; both come in the order of the numbers."""
        held, last = [], -1
        others = self._tables(self.read("inspected", ["position", *columns]))
        for batch in batches:
            wanted = numbers_of(batch["edits"]["position"])
            while last < wanted[-1]:
                other = next(others)
                numbers = numbers_of(other["position"])
                last = numbers[-1]
                held.append((numbers, other))
            places = [np.isin(numbers, wanted) for numbers, _ in held]
            rows = pa.concat_tables([table.filter(pa.array(place)) for place, (_, table) in zip(places, held, strict=True)])
            assert np.array_equal(numbers_of(rows["position"]), wanted), "every scored edit was inspected, in the same order"
            held = [(numbers, table) for numbers, table in held if numbers[-1] > wanted[-1]]
            yield batch | {"inspected": rows}


def reader(step: StepFolder, artifacts: dict[str, list[Part]]) -> Read:
    """Reads the parts of a step's artifacts."""

    def read(artifact: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        files = [step.path / part.path for part in artifacts.get(artifact, [])]
        if not files:
            return iter(())
        contract, written = SCHEMAS[artifact], pq.read_schema(files[0])  # which has what gates measure besides
        schema = pa.schema([(contract if name in contract.names else written).field(name) for name in columns])
        return tables.batches(files, schema)

    return read
