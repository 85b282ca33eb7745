"""Parquet files with embedded images, read a few rows at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from stages.datasets.io import files
from stages.datasets.io.text_tables import Bad
from stages.engine.ids import settings_hash

SUFFIX = ".parquet"
BATCH_ROWS = 8
"""Rows in memory at the same time, images included."""


@contextmanager
def opened(folder: str, name: str, *, needed: Sequence[str], what: str) -> Generator[pq.ParquetFile]:
    """A file's footer. Raises ``ValueError`` for a file that is not whole, lacks a column, or has one twice."""
    with files.opened(f"{folder}/{name}") as file:
        try:
            table = pq.ParquetFile(file)
        except (pa.ArrowInvalid, OSError) as error:
            raise ValueError(f"{what}: {folder}/{name} is not a whole Parquet file ({_line(error)}); download it again") from None
        check_columns(f"{folder}/{name}", table.schema_arrow.names, needed, what=what)
        yield table


def check_columns(path: str, there: Sequence[str], needed: Sequence[str], *, what: str) -> None:
    """Raise ``ValueError`` naming the first column that is missing, and those that are there; or one that is there more than once, whether
    it is needed or passed on."""
    for name, times in Counter(there).items():
        if times > 1:
            raise ValueError(f"{what}: {path} has {times} columns {name or 'without a name'}; rename or remove all but one")
    missing = [name for name in needed if name not in there]
    if missing:
        raise ValueError(
            f"{what}: {path} has no column {missing[0]}; it has {', '.join(there) or 'none'}: choose a preset, or name its columns "
            f"under {what}.columns"
        )


def mark(table: pq.ParquetFile, group: int) -> str:
    """Hash of the offsets and sizes of a row group's columns, which change with the content in practice."""
    described = table.metadata.row_group(group)
    chunks = [described.column(number) for number in range(described.num_columns)]
    return settings_hash([[chunk.path_in_schema, chunk.data_page_offset, chunk.total_compressed_size] for chunk in chunks])


def has_bytes(kind: pa.DataType) -> bool:
    """Whether values of a type contain binary data, such as images."""
    if any(test(kind) for test in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)):
        return True
    return any(has_bytes(kind.field(number).type) for number in range(kind.num_fields))


def rows(table: pq.ParquetFile, group: int, first: int, columns: Sequence[str], path: str) -> Iterator[pa.RecordBatch]:
    """Rows of a row group from its row ``first`` on, each as a batch of one row. Raises ``ValueError`` naming the file's ``path`` where
    they cannot be read."""
    try:
        for batch in table.iter_batches(batch_size=BATCH_ROWS, row_groups=[group], columns=list(columns)):
            for row in range(min(first, batch.num_rows), batch.num_rows):
                yield batch.slice(row, 1)
            first = max(0, first - batch.num_rows)
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(f"{path}: its row group {group} cannot be read ({_line(error)}); download it again") from error


def _line(error: BaseException) -> str:
    """The message of an error of Arrow, which may have several lines."""
    return " ".join(str(error).split())


def values(row: pa.RecordBatch, needed: Collection[str]) -> dict[str, Any] | Bad:
    """A batch of one row as values by column. A value that Python cannot have (text that is not UTF-8, a date far away) makes the row bad
    in a column of ``needed``; elsewhere ``{"unreadable": why}`` stands in its place."""
    try:
        return row.to_pylist()[0]
    except (ValueError, ArithmeticError):
        found: dict[str, Any] = {}
    for name, column in zip(row.schema.names, row.columns, strict=True):
        try:
            found[name] = column[0].as_py()
        except (ValueError, ArithmeticError) as error:
            if name in needed:
                return Bad(f"its column {name} cannot be read ({error})")
            found[name] = {"unreadable": str(error)}
    return found
