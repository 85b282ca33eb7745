"""Selections from tables in memory, by the code that makes them from files."""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.engine import storage, tables
from stages.engine.contracts import SELECTION
from stages.engine.rundir import StepFolder
from stages.engine.tables import Tables, opened
from stages.engine.units import publish_unit
from stages.filter.schemas import OF_EDITS, SCORED
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
    """The scored edits of these tables; columns of the scores that they do not have are empty."""
    known = {"scores": artifacts} if isinstance(artifacts, pa.Table) else artifacts
    tables = {**known, "scores": completed(known["scores"])}
    folder = Path(_open.enter_context(tempfile.TemporaryDirectory()))
    parts = {name: [part] for name, part in publish_unit(folder, "unit", tables).items()}
    return ScoredRows.of(_database(), StepFolder(folder, "filter"), parts, flags)


def completed(scores: pa.Table, delivered: pa.Table | None = None) -> pa.Table:
    """Scores of the schema ``SCORED``, with what rows of the contract ``edits`` have, if they are given.

    Texts, lists and numbers that are not there are empty or their place."""
    count = scores.num_rows
    if delivered is not None:
        for name in OF_EDITS:
            scores = scores.append_column(name, delivered[name])
        for name in ("source", "edited"):
            scores = scores.append_column(f"{name}_path", pc.struct_field(delivered[name], "path"))
        scores = scores.append_column("source_sha256", scores["source_path"])  # equal names are equal images here
    empty = {pa.string(): "", pa.list_(pa.string()): [], pa.int32(): 0}
    columns = [
        scores[field.name]
        if field.name in scores.column_names
        else np.arange(count)
        if field.name == "number"
        else pa.array([empty.get(field.type)] * count, field.type)
        for field in SCORED
    ]
    return pa.table(columns, names=SCORED.names).cast(SCORED)


_open = ExitStack()
"""Kept here too: multiprocessing's forked children forget what ``atexit`` holds, and a database that ends in one takes it along."""
atexit.register(_open.close)


@cache
def _database() -> Tables:
    """One for the process: opening one takes longer than a selection."""
    return _open.enter_context(opened(_open.enter_context(tempfile.TemporaryDirectory())))
