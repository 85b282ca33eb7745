"""Readers of rating files: CSV (comma, semicolon or tab), JSON Lines, a JSON list, Parquet; long or wide.

In: a file. Out: a :class:`Delivery` of texts. A file that cannot be read as a whole is refused with ``ValueError`` before anything is
written: not UTF-8, unknown format, no rows, a required column missing or doubled, truncated JSON, damaged Parquet. A single line that is
no row becomes a broken row.
"""

from __future__ import annotations

import csv
import difflib
import hashlib
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any, Literal, get_args

import pyarrow as pa
import pyarrow.parquet as pq

from stages import storage
from stages.contracts import DIMENSIONS
from stages.ratings import imagenhub
from stages.ratings.delivery import COLUMNS, DIMENSION_ALIASES, OPTIONAL, REQUIRED, Broken, Delivered, Delivery

Format = Literal["auto", "long", "wide", "imagenhub"]
Row = tuple[int, list[str]]

csv.field_size_limit(1 << 20)


def read(path: str | Path, format: Format = "auto") -> Delivery:
    """Parse a file. ``long``: a row per rating; ``wide``: a row per candidate with a column per dimension; ``auto``: by its columns.

    Raises ``ValueError`` naming the file, the place and what to do.
    """
    if format not in get_args(Format):
        raise ValueError(f"there is no format {format!r} of ratings; use one of {', '.join(get_args(Format))}")
    data = _content(path)
    name = PurePath(str(path)).name
    if format == "imagenhub":
        return imagenhub.parse(name, _text(data, name), _sha256(data))
    suffix = PurePath(name).suffix.lower()
    if suffix in (".csv", ".tsv"):
        header, rows, broken = _delimited(_text(data, name), name)
        counts_in = "line"
    elif suffix in (".jsonl", ".ndjson"):
        header, rows, broken = _json_lines(_text(data, name), name)
        counts_in = "line"
    elif suffix == ".json":
        header, rows, broken = _json_list(_text(data, name), name)
        counts_in = "record"
    elif suffix in (".parquet", ".pq"):
        header, rows, broken = _parquet(data, name)
        counts_in = "row"
    else:
        raise ValueError(f"{name}: ratings are read from .csv, .tsv, .jsonl, .ndjson, .json, .parquet or .pq files, not from {suffix!r}")
    if not rows and not broken:
        raise ValueError(f"{name} has no ratings: it holds only column names; fill it in or leave it out")
    shape, columns, warnings = _shape(header, name, format)
    build = _long if shape == "long" else _wide
    return Delivery(name, _sha256(data), shape, counts_in, list(build(columns, rows)), broken, warnings)


def _content(path: str | Path) -> bytes:
    try:
        return storage.read_bytes(path)
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror or error}); give a file of ratings") from None


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _text(data: bytes, name: str) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not UTF-8 text (byte {error.start} is 0x{data[error.start]:02x}); save it again as UTF-8") from None
    if not text.strip():
        raise ValueError(f"{name} is empty; give a file with column names and ratings")
    return text


def _delimited(text: str, name: str) -> tuple[list[str], list[Row], list[Broken]]:
    """The delimiter is the one of comma, semicolon and tab that occurs most often in the line of column names."""
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
    assert header is not None, "a text that is not empty has a first line"
    return header, rows, broken


def _json_lines(text: str, name: str) -> tuple[list[str], list[Row], list[Broken]]:
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
    return *_columns_of(records), broken


def _json_list(text: str, name: str) -> tuple[list[str], list[Row], list[Broken]]:
    try:
        records = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{name} line {error.lineno} column {error.colno} is not JSON ({error.msg}); is the file complete?") from None
    if not isinstance(records, list):
        raise ValueError(f"{name} holds a JSON {type(records).__name__}; expected a list of objects, one per rating")
    sound = [(number, record) for number, record in enumerate(records, start=1) if isinstance(record, dict)]
    broken = [
        Broken(number, "not-json", f"the record is not an object: {json.dumps(record)[:60]}")
        for number, record in enumerate(records, start=1)
        if not isinstance(record, dict)
    ]
    return *_columns_of(sound), broken


def _columns_of(records: Sequence[tuple[int, dict[str, Any]]]) -> tuple[list[str], list[Row]]:
    """Column names in the order of their first appearance, and rows in which an absent key is an empty text."""
    header = list(dict.fromkeys(key for _, record in records for key in record))
    return header, [(number, [_plain(record.get(key)) for key in header]) for number, record in records]


def _plain(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


def _parquet(data: bytes, name: str) -> tuple[list[str], list[Row], list[Broken]]:
    try:
        table = pq.read_table(io.BytesIO(data))
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{name} is not a sound Parquet file ({str(error).splitlines()[0]}); write it again") from None
    columns = []
    for field, column in zip(table.schema, table.columns, strict=True):
        try:
            columns.append(["" if value is None else value for value in column.cast(pa.string()).to_pylist()])
        except (pa.ArrowException, UnicodeDecodeError):
            if field.name.strip().lower() in COLUMNS + DIMENSIONS:
                raise ValueError(f"{name}: column {field.name} has type {field.type}; expected text, a number or a time") from None
            columns.append([""] * table.num_rows)
    return table.schema.names, [(number, list(cells)) for number, cells in enumerate(zip(*columns, strict=True), start=1)], []


def _shape(header: Sequence[str], name: str, format: Format) -> tuple[str, list[str], list[str]]:
    """Whether the columns are long or wide, their names as we use them, and warnings about columns that nobody reads."""
    columns = [DIMENSION_ALIASES.get(column, column) for column in (text.strip().lower() for text in header)]
    doubled = sorted({column for column in columns if columns.count(column) > 1 and column in COLUMNS + DIMENSIONS})
    if doubled:
        raise ValueError(f"{name} has the column {doubled[0]} twice; keep one")
    dimensions = [column for column in columns if column in DIMENSIONS]
    shape = format if format != "auto" else "wide" if dimensions and "score" not in columns else "long"
    required = REQUIRED if shape == "long" else tuple(column for column in REQUIRED if column not in ("dimension", "score"))
    missing = [column for column in required if column not in columns]
    if missing:
        close = difflib.get_close_matches(missing[0], columns, 1)
        hint = f"; is {close[0]!r} meant?" if close else ""
        if columns[:1] == ["uid"]:
            hint = "; a table of uid by editors is read with the format imagenhub"
        plural = "s" if len(missing) > 1 else ""
        raise ValueError(f"{name} lacks the column{plural} {', '.join(missing)} (it has {', '.join(columns) or 'none'}){hint}")
    if shape == "wide" and not dimensions:
        raise ValueError(f"{name} has no column of scores: a wide file has one or more of {', '.join(DIMENSIONS)}")
    known = set(required) | set(OPTIONAL) | (set(dimensions) if shape == "wide" else set())
    ignored = [column for column in columns if column not in known]
    return shape, columns, [f"{name}: column {column!r} is not read" for column in ignored]


def _long(columns: Sequence[str], rows: Sequence[Row]) -> Iterator[Delivered]:
    places = {column: columns.index(column) for column in COLUMNS if column in columns}
    for number, cells in rows:
        yield Delivered(number, **{column: cells[place].strip() for column, place in places.items()})


def _wide(columns: Sequence[str], rows: Sequence[Row]) -> Iterator[Delivered]:
    shared = {column: columns.index(column) for column in COLUMNS if column in columns and column not in ("dimension", "score")}
    scores = {dimension: columns.index(dimension) for dimension in DIMENSIONS if dimension in columns}
    for number, cells in rows:
        common = {column: cells[place].strip() for column, place in shared.items()}
        for dimension, place in scores.items():
            yield Delivered(number, dimension=dimension, score=cells[place].strip(), **common)
