"""Questions to tables that may not fit in memory: sorting, joining and counting rows of Parquet parts by DuckDB, out of core.

DuckDB spills to a folder that goes with the block, and keeps to ``MEMORY_GB``. What it has no function for, NumPy and Arrow compute a batch
of rows at a time. Results are the same on any number of threads as long as a query orders its rows by something unique, which every query
must: DuckDB keeps no other order here.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
from duckdb.func import PythonUDFType

from stages.engine import storage

MEMORY_GB = 1.0
"""Memory of DuckDB. Arrow batches and results come on top."""
BATCH_ROWS = 1 << 17
TOGETHER = 2_000_000
"""Numbers of rows of many texts that are put in order at a time: sorting all would need more memory than there is."""
PLACE = "place"
"""Column that :func:`numbered` adds: the number of a row, from 0."""


@contextmanager
def _stoppable() -> Generator[None]:
    """Ctrl-C in the middle of a query is Ctrl-C; DuckDB raises an error of its own."""
    try:
        yield
    except RuntimeError as error:
        if str(error) != "Query interrupted":
            raise
        raise KeyboardInterrupt from None


class Tables:
    """A DuckDB database for one task. ``folder``: of its temporary files, and of others that go with it."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, folder: Path) -> None:
        self.connection, self.folder = connection, folder

    @_stoppable()
    def keep(self, name: str, rows: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
        """Store batches as the table ``name``, on the disk where memory does not suffice. A table of that name is replaced.

        Raises what making the batches raises.
        """
        failures: list[BaseException] = []
        self.connection.register("given", pa.RecordBatchReader.from_batches(schema, _remembering(rows, failures)))
        try:
            self.connection.execute(f'CREATE OR REPLACE TABLE "{name}" AS SELECT * FROM given')
        except duckdb.Error:
            if failures:  # DuckDB raises an error of its own with the text of this one
                raise failures[0] from None
            raise
        finally:
            self.connection.unregister("given")

    def view(self, name: str, files: Sequence[Path], schema: pa.Schema) -> None:
        """Make the rows of local Parquet files, columns of ``schema``, known as ``name``; nothing is read before it is asked for."""
        if files:
            found = self.connection.read_parquet([literal(file) for file in files], hive_partitioning=False)
        else:
            found = self.connection.from_arrow(schema.empty_table())
        found.project(", ".join(f'"{column}"' for column in schema.names)).create_view(name, replace=True)

    def define(self, name: str, function: Callable[[pa.ChunkedArray], pa.Array], given: str, gives: str) -> None:
        """Let queries call ``function`` with a column of the type ``given``; types are DuckDB's names."""
        with suppress(duckdb.InvalidInputException):  # there is none of this name yet
            self.connection.remove_function(name)
        self.connection.create_function(name, function, [given], gives, type=PythonUDFType.ARROW)

    @_stoppable()
    def execute(self, query: str) -> None:
        """Run a statement that gives no rows, as ``CREATE TABLE name AS SELECT``."""
        self.connection.execute(query)

    def rows(self, query: str) -> Iterator[pa.RecordBatch]:
        """The answer in batches of at most ``BATCH_ROWS``. Other things may be asked, and kept, before the last one has been read."""
        with self.connection.cursor() as cursor:
            with _stoppable():
                answer = cursor.sql(query).to_arrow_reader(BATCH_ROWS)
            assert answer is not None, "the query gives rows"
            yield from answer

    @_stoppable()
    def table(self, query: str, parameters: Sequence[object] = ()) -> pa.Table:
        """A small answer whole."""
        return self.connection.sql(query, params=[*parameters]).to_arrow_table()

    def spans(self, column: str, rows: str) -> Iterator[str]:
        """Conditions that part rows by their numbers, in ascending order: whole numbers from 0 in the column."""
        end = self.number(f"SELECT coalesce(max({column}) + 1, 0) FROM {rows}")
        for first in range(0, end, TOGETHER):
            yield f"{column} >= {first} AND {column} < {first + TOGETHER}"

    @_stoppable()
    def number(self, query: str) -> int:
        """The only value of an answer, as an integer."""
        ((found,),) = self.connection.sql(query).fetchall()
        return int(found)

    @_stoppable()
    def quantiles(self, column: str, rows: str, levels: Sequence[float]) -> list[float]:
        """Quantiles of a column of floats as ``np.quantile`` gives them, nulls left out; none where nothing is left.

        Equal values are counted first: sorting many of them takes memory for all, and a function that finds a quantile holds all.
        """
        count = self.number(f"SELECT count({column}) FROM {rows}")
        if not count:
            return []
        exact = [level * (count - 1) for level in levels]
        sides = [min(int(place) + side, count - 1) for place in exact for side in (0, 1)]
        ends = "sum(count(*)) OVER (ORDER BY value) AS ends"  # places up to the last one that has the value
        counted = f"SELECT {column} AS value, {ends} FROM {rows} WHERE {column} IS NOT NULL GROUP BY value"
        there = ", ".join(f"min(value) FILTER (ends > {place})" for place in sides)
        (found,) = self.connection.sql(f"SELECT {there} FROM ({counted})").fetchall()
        return [float(np.quantile(found[2 * at : 2 * at + 2], place - int(place))) for at, place in enumerate(exact)]


def literal(path: Path) -> str:
    """What DuckDB reads this one file by: it takes a path for a pattern, so that of ``runs/a[1]`` it would read ``runs/a1``."""
    return _WILD.sub(r"[\1]", str(path))


_WILD = re.compile(r"([*?\[])")


@contextmanager
def opened(scratch: str | Path | None = None) -> Generator[Tables]:
    """A database in a temporary folder below ``scratch``, which must have room for what is kept and sorted; both go with the block.

    scratch: None: the system's folder of temporary files.
    """
    if scratch is not None:
        Path(scratch).mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=storage.TEMPORARY, dir=scratch))
    settings: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": f"{MEMORY_GB}GB",
        "temp_directory": str(folder),
        "preserve_insertion_order": False,  # queries order their rows themselves; keeping another order costs memory
        "threads": len(os.sched_getaffinity(0)),
    }
    connection = duckdb.connect(config=settings)  # in memory, and beyond that in the folder: a file would be compressed for good
    try:
        yield Tables(connection, folder)
    finally:
        connection.close()
        shutil.rmtree(folder, ignore_errors=True)


def text(value: str) -> str:
    """A text as a literal in SQL."""
    return "'" + value.replace("'", "''") + "'"


def batches(files: Iterable[Path], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows of local Parquet files in their order, cast to ``schema``, of whose columns nothing else is read."""
    for file in files:
        for batch in storage.read_batches(file, BATCH_ROWS, schema.names):
            yield batch.select(schema.names).cast(schema)


def numbered(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches with the :data:`PLACE` of each row as a first column: int64."""
    number = 0
    for batch in rows:
        places = pa.array(np.arange(number, number + len(batch)))
        yield pa.RecordBatch.from_arrays([places, *batch.columns], schema=with_place(batch.schema))
        number += len(batch)


def with_place(schema: pa.Schema) -> pa.Schema:
    """The schema of what :func:`numbered` gives."""
    return schema.insert(0, pa.field(PLACE, pa.int64()))


def _remembering(rows: Iterable[pa.RecordBatch], failures: list[BaseException]) -> Iterator[pa.RecordBatch]:
    """The batches; an exception of theirs is put into ``failures`` before it is raised."""
    try:
        yield from rows
    except BaseException as error:
        failures.append(error)
        raise
