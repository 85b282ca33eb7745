"""What a file of ratings holds, before it is known what its columns mean: a table of texts, or JSON records.

In: a file's bytes. Out: :class:`Table` or :class:`Records`. A file that cannot be read as a whole is refused with ``ValueError``: not
UTF-8, no rows, truncated JSON, damaged Parquet. A single line that is no row becomes a broken row.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from stages.annotate.ratings.delivery import Broken
from stages.engine import storage

Row = tuple[int, Sequence[str]]
"""Number of the line, record or row in the file, and its cells."""

csv.field_size_limit(1 << 20)


@dataclass(frozen=True)
class Table:
    """Rows of texts under a header; an absent cell is an empty text. ``counts_in``: what the row numbers count."""

    header: Sequence[str]
    rows: Sequence[Row]
    counts_in: str
    broken: Sequence[Broken] = ()


@dataclass(frozen=True)
class Records:
    """JSON objects with their numbers in the file."""

    records: Sequence[tuple[int, dict[str, Any]]]
    counts_in: str
    broken: Sequence[Broken] = field(default_factory=list)

    def table(self) -> Table:
        """Column names in the order of their first appearance, and a row per record."""
        header = list(dict.fromkeys(key for _, record in self.records for key in record))
        return Table(header, [(number, [plain(r.get(key)) for key in header]) for number, r in self.records], self.counts_in, self.broken)


def content(path: str | Path) -> bytes:
    """All bytes of a file, local or remote."""
    try:
        return storage.read_bytes(path)
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror or error}); give a file of ratings") from None


def sha256(data: bytes) -> str:
    """Hash of a file's bytes."""
    return hashlib.sha256(data).hexdigest()


def text(data: bytes, name: str) -> str:
    """The bytes as UTF-8 text that is not empty."""
    try:
        decoded = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not UTF-8 text (byte {error.start} is 0x{data[error.start]:02x}); save it again as UTF-8") from None
    if not decoded.strip():
        raise ValueError(f"{name} is empty; give a file with column names and ratings")
    return decoded


def delimited(text: str, name: str) -> Table:
    """CSV; the delimiter is the one of comma, semicolon and tab that occurs most often in the line of column names."""
    first = text.lstrip("\r\n").splitlines()[0]
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=first.count), strict=True)
    header: list[str] | None = None
    rows: list[Row] = []
    broken: list[Broken] = []
    start = 1
    try:
        for cells in lines:
            number, start = start, lines.line_num + 1
            if not any(cells):
                continue
            if header is None:
                header = cells
            elif len(cells) == len(header):
                rows.append((number, cells))
            else:
                message = f"the row has {len(cells)} fields, there are {len(header)} column names; quote fields that contain the delimiter"
                broken.append(Broken(number, "field-count", message))
    except csv.Error as error:
        raise ValueError(f"{name} line {start} is not CSV ({error}); quote fields that contain quotes or line ends") from None
    if header is None:
        raise ValueError(f"{name} has no column names; give a file whose first line names its columns")
    return Table(header, rows, "line", broken)


def json_lines(text: str, name: str) -> Records:
    """One JSON object per line."""
    records: list[tuple[int, dict[str, Any]]] = []
    broken: list[Broken] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            broken.append(Broken(number, "not-json", f"the line is not JSON ({error})"))
            continue
        if isinstance(record, dict):
            records.append((number, record))
        else:
            broken.append(Broken(number, "not-json", f"the line is JSON but not an object: {line.strip()[:60]!r}"))
    if not records:
        number, _, message = broken[0]
        raise ValueError(f"{name} line {number}: {message}, nor is any other; write one JSON object per rating and line")
    return Records(records, "line", broken)


def json_list(text: str, name: str) -> Records:
    """A JSON list of objects."""
    try:
        records = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{name} line {error.lineno} column {error.colno} is not JSON ({error.msg}); is the file complete?") from None
    if not isinstance(records, list):
        raise ValueError(f"{name} holds a JSON {type(records).__name__}; expected a list of objects, one per rating")
    numbered = list(enumerate(records, start=1))
    broken = [
        Broken(number, "not-json", f"the record is not an object: {json.dumps(record)[:60]}")
        for number, record in numbered
        if not isinstance(record, dict)
    ]
    return Records([(number, record) for number, record in numbered if isinstance(record, dict)], "record", broken)


def parquet_columns(data: bytes, name: str) -> list[str]:
    """Names of a Parquet file's columns."""
    return list(_parquet(data, name).schema_arrow.names)


def parquet(data: bytes, name: str, *, needed: Collection[str], only: Sequence[str] | None = None) -> Table:
    """Columns of a Parquet file as texts (all, or ``only`` some). A column that is no text is refused if it is ``needed``, else empty."""
    try:
        table = _parquet(data, name).read(columns=only)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(name, error) from None
    columns = []
    for names, column in zip(table.schema, table.columns, strict=True):
        try:
            columns.append(["" if value is None else value for value in column.cast(pa.string()).to_pylist()])
        except (pa.ArrowException, UnicodeDecodeError):
            if names.name.strip().lower() in needed:
                raise ValueError(f"{name}: column {names.name} has type {names.type}; expected text, a number or a time") from None
            columns.append([""] * table.num_rows)
    return Table(table.schema.names, list(enumerate(zip(*columns, strict=True), start=1)), "row")


def _parquet(data: bytes, name: str) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(io.BytesIO(data))
    except (pa.ArrowException, OSError) as error:
        raise _damaged(name, error) from None


def _damaged(name: str, error: Exception) -> ValueError:
    return ValueError(f"{name} is not a sound Parquet file ({str(error).splitlines()[0]}); write it again")


def plain(value: Any) -> str:
    """A JSON value as text; null is an empty text."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)
