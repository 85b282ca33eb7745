"""Selections from tables in memory, by the code that makes them from files."""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import pyarrow as pa

from stages.engine import storage, tables
from stages.engine.contracts import SELECTION
from stages.engine.tables import Tables, opened
from stages.filter.selection import rule
from stages.filter.selection.config import SelectionConfig
from stages.filter.selection.quotas import Stratum
from stages.filter.selection.scored_rows import ScoredRows


class Made(NamedTuple):
    """What a selection keeps, and what came of its quotas."""

    table: pa.Table
    strata: tuple[Stratum, ...]


def select(
    artifacts: pa.Table | Mapping[str, pa.Table],
    config: SelectionConfig,
    others: Mapping[str, pa.Table] | None = None,
    flags: frozenset[str] = frozenset(),
) -> Made:
    """A selection from the table of scores, or from the tables of a run."""
    with tempfile.TemporaryDirectory() as folder:
        files = {name: Path(folder) / f"{name}.parquet" for name in others or {}}
        for name, path in files.items():
            path.write_bytes(storage.table_bytes((others or {})[name]))
        with patch.object(tables, "BATCH_ROWS", 7):  # so that a selection is made of several batches
            made = rule.select(rows_of(artifacts, flags), config, files)
            batches = list(made.rows)
        assert sum(map(len, batches)) == made.count
        return Made(pa.Table.from_batches(batches, SELECTION), made.strata)


def rows_of(artifacts: pa.Table | Mapping[str, pa.Table], flags: frozenset[str] = frozenset()) -> ScoredRows:
    """The scored edits of these tables."""
    known = {"scores": artifacts} if isinstance(artifacts, pa.Table) else artifacts

    def read(artifact: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        yield from known[artifact].select(list(columns)).to_batches(max_chunksize=5)

    return ScoredRows(_database(), read, known["scores"].num_rows, frozenset(known), flags)


_open = ExitStack()
"""Kept here too: multiprocessing's forked children forget what ``atexit`` holds, and a database that ends in one takes it along."""
atexit.register(_open.close)


@cache
def _database() -> Tables:
    """One for the process: opening one takes longer than a selection."""
    return _open.enter_context(opened(_open.enter_context(tempfile.TemporaryDirectory())))
