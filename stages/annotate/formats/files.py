"""Rating files as tables of texts or as JSON records, before anything is known about their columns.

In: a file. Out: :class:`Table` or :class:`Records`. ``ValueError`` refuses a file that cannot be read as a whole: not UTF-8, no rows,
truncated JSON, damaged Parquet. A single unreadable line becomes an invalid row.
"""

from __future__ import annotations

import codecs
import csv
import hashlib
import io
import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from stages.annotate.ratings.delivery import InvalidRow
from stages.datasets.io.text_tables import IS_JSON_LINES
from stages.engine import storage

Row = tuple[int, Sequence[str]]
"""Number of the line, record or row in the file, and its cells."""

DELIMITED, JSON_LINES, PARQUET = (".csv", ".tsv"), (".jsonl", ".ndjson"), (".parquet", ".pq")
"""Endings of file names."""

_OTHERS = {
    b"PK\x03\x04": "a spreadsheet or another zip archive",
    b"\xd0\xcf\x11\xe0": "a spreadsheet of an old office program",
    b"%PDF-": "a PDF",
    b"\x1f\x8b": "a gzip archive",
    b"PAR1": "a Parquet file",
    b"<": "an HTML or XML page",
}
"""What a file is whose content begins so: no rating file of text does."""

csv.field_size_limit(1 << 20)

DELIMITERS = ",;\t|"
_SEPARATOR = re.compile(r'"?sep=(.)"?', re.IGNORECASE)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
DEEPEST_JSON = 50
"""Levels of lists and objects; an export of an annotation tool has about ten."""


@dataclass(frozen=True)
class Table:
    """Rows of texts under a header; an absent cell is an empty text. ``counts_in``: unit of the row numbers."""

    header: Sequence[str]
    rows: Sequence[Row]
    counts_in: str
    invalid: Sequence[InvalidRow] = ()


@dataclass(frozen=True)
class Records:
    """JSON objects with their numbers in the file."""

    records: Sequence[tuple[int, dict[str, Any]]]
    counts_in: str
    invalid: Sequence[InvalidRow] = field(default_factory=list)

    def table(self) -> Table:
        """A row per record, the columns in the order of their first appearance."""
        header = list(dict.fromkeys(key for _, record in self.records for key in record))
        return Table(header, [(number, [plain(r.get(key)) for key in header]) for number, r in self.records], self.counts_in, self.invalid)


class RatingFile:
    """A file, local or remote; each view of its content is made when it is first used. Raises ``ValueError`` for what cannot be read.

    dimensions: of the rating task.
    """

    def __init__(self, path: str | Path, dimensions: Sequence[str] = ()) -> None:
        self.path, self.name, self.dimensions = path, PurePath(str(path)).name, tuple(dimensions)
        self.suffix = PurePath(self.name).suffix.lower()
        try:
            self.data = storage.read_bytes(path)
        except OSError as error:
            raise ValueError(f"{path} cannot be read ({error.strerror or error}); give a file that is there") from None

    @cached_property
    def sha256(self) -> str:
        """Hash of the content."""
        return hashlib.sha256(self.data).hexdigest()

    @cached_property
    def text(self) -> str:
        """The content as UTF-8 text, which is not empty."""
        other = next((kind for begin, kind in _OTHERS.items() if self.data.lstrip().startswith(begin)), None)
        if other is not None:
            raise ValueError(f"{self.name} is {other}, not the text that its name says; save its table as CSV in UTF-8")
        if self.data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) or b"\0" in self.data[:2]:
            raise ValueError(f"{self.name} is not UTF-8 text but UTF-16 or UTF-32; save it again as UTF-8")
        try:
            decoded = self.data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            place = f"byte {error.start} is 0x{self.data[error.start]:02x}"
            raise ValueError(f"{self.name} is not UTF-8 text ({place}); save it again as UTF-8") from None
        if not decoded.strip():
            raise ValueError(f"{self.name} is empty; give a file with column names and ratings")
        return decoded

    @cached_property
    def records(self) -> Records:
        """The JSON objects of the file."""
        if self.suffix in JSON_LINES:
            return _json_lines(self.text, self.name)
        if self.suffix == ".json":
            return _json_list(self.text, self.name)
        raise ValueError(f"{self.name} is not JSON, as this format is; export it as JSON")

    @property
    def first_record(self) -> dict[str, Any]:
        """The first JSON object; empty for a file that is not JSON or has none."""
        return self.records.records[0][1] if self.suffix in (*JSON_LINES, ".json") and self.records.records else {}

    @cached_property
    def header(self) -> Sequence[str]:
        """Names of the columns; none where the kind of file is unknown."""
        if self.suffix in PARQUET:
            return self._parquet.schema_arrow.names
        return self._table.header if self.suffix in (*DELIMITED, *JSON_LINES, ".json") else []

    def table(self, needed: Collection[str], only: Sequence[str] | None = None) -> Table:
        """The rows. A Parquet column that is not text is refused if it is ``needed``, else read as empty; ``only`` these are read."""
        if self.suffix in PARQUET:
            return _parquet_table(self._parquet, self.name, needed, only)
        return self._table

    @cached_property
    def _table(self) -> Table:
        if self.suffix in DELIMITED:
            return delimited(self.text, self.name)
        if self.suffix in (*JSON_LINES, ".json"):
            return self.records.table()
        raise ValueError(
            f"{self.name}: ratings are read from .csv, .tsv, .jsonl, .ndjson, .json, .parquet or .pq files "
            f"and from the rating page's database, not from {self.suffix!r}"
        )

    @cached_property
    def _parquet(self) -> pq.ParquetFile:
        try:
            return pq.ParquetFile(io.BytesIO(self.data))
        except (pa.ArrowException, OSError) as error:
            raise _damaged(self.name, error) from None


def delimited(text: str, name: str) -> Table:
    """Rows of CSV text. The delimiter is the one of :data:`DELIMITERS` that is most frequent in the line of column names, or the one that a
    first line ``sep=;`` declares, as spreadsheets write it."""
    first = text.lstrip("\r\n").splitlines()[0]
    declared = _SEPARATOR.fullmatch(first.strip())
    if declared:
        text = text.replace(first, "", 1)  # the empty line stays, so that the numbers are those of the file
    delimiter = declared[1] if declared else max(DELIMITERS, key=first.count)
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    header: list[str] | None = None
    rows: list[Row] = []
    invalid: list[InvalidRow] = []
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
                invalid.append(InvalidRow(number, "field-count", message))
    except csv.Error as error:
        raise ValueError(f"{name} line {start} is not CSV ({error}); quote fields that contain quotes or line ends") from None
    if declared and header and len(header) == 1 and any(one in header[0] for one in DELIMITERS):
        raise ValueError(f"{name}: its first line says {first.strip()}, but {delimiter!r} separates no column names; remove that line")
    if header is None:
        raise ValueError(f"{name} has no column names; give a file whose first line names its columns")
    return Table(header, rows, "line", invalid)


def _parsed(text: str) -> Any:
    """Parsed JSON. Raises ``ValueError`` also for what would be read wrong later: a key twice, half a surrogate pair, deep nesting."""
    try:
        value = json.loads(text, object_pairs_hook=_object)
    except RecursionError:
        raise ValueError(f"it is nested more than {DEEPEST_JSON} levels deep") from None
    level = [value]
    for _ in range(DEEPEST_JSON):
        level = [
            child
            for parent in level
            if isinstance(parent, dict | list)
            for child in (parent.values() if isinstance(parent, dict) else parent)
        ]
        if not level:
            break
    else:
        raise ValueError(f"it is nested more than {DEEPEST_JSON} levels deep")
    if _SURROGATE.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("it has half of a surrogate pair, which is no text") from None
    return value


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in found if keys.count(key) > 1)!r} twice in one object; keep one")
    return found


def _json_lines(text: str, name: str) -> Records:
    """One JSON object per line."""
    records: list[tuple[int, dict[str, Any]]] = []
    invalid: list[InvalidRow] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            record = _parsed(line)
        except ValueError as error:
            invalid.append(InvalidRow(number, "not-json", f"the line is not JSON ({error})"))
            continue
        if isinstance(record, dict):
            records.append((number, record))
        else:
            invalid.append(InvalidRow(number, "not-json", f"the line is JSON but not an object: {line.strip()[:60]!r}"))
    if not records:
        number, _, message = invalid[0]
        raise ValueError(f"{name} line {number}: {message}, nor is any other; write one JSON object per rating and line")
    return Records(records, "line", invalid)


def _json_list(text: str, name: str) -> Records:
    """A JSON list of objects."""
    try:
        records = _parsed(text)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data" and text.lstrip()[0] == text[error.pos] == "{":
            raise ValueError(f"{name} {IS_JSON_LINES}") from None
        raise ValueError(f"{name} line {error.lineno} column {error.colno} is not JSON ({error.msg}); is the file complete?") from None
    except ValueError as error:
        raise ValueError(f"{name} cannot be read: {error}") from None
    if not isinstance(records, list):
        raise ValueError(f"{name} contains a JSON {type(records).__name__}; expected a list of objects, one per rating")
    numbered = list(enumerate(records, start=1))
    invalid = [
        InvalidRow(number, "not-json", f"the record is not an object: {json.dumps(record)[:60]}")
        for number, record in numbered
        if not isinstance(record, dict)
    ]
    return Records([(number, record) for number, record in numbered if isinstance(record, dict)], "record", invalid)


def _parquet_table(file: pq.ParquetFile, name: str, needed: Collection[str], only: Sequence[str] | None) -> Table:
    try:
        table = file.read(columns=only)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(name, error) from None
    columns = []
    for column, values in zip(table.schema, table.columns, strict=True):
        try:
            columns.append(["" if value is None else value for value in values.cast(pa.string()).to_pylist()])
        except (pa.ArrowException, UnicodeDecodeError):
            if column.name.strip().lower() in needed:
                raise ValueError(f"{name}: column {column.name} has type {column.type}; expected text, a number or a time") from None
            columns.append([""] * table.num_rows)
    return Table(table.schema.names, list(enumerate(zip(*columns, strict=True), start=1)), "row")


def _damaged(name: str, error: Exception) -> ValueError:
    return ValueError(f"{name} is not a valid Parquet file ({str(error).splitlines()[0]}); write it again")


def plain(value: Any) -> str:
    """A JSON value as text; null is an empty text."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)
