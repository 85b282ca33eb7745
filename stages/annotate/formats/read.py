"""Readers of rating files: what format a file has, and the parser for it.

In: a file. Out: a :class:`Delivery` of texts. A file that cannot be read as a whole is refused with ``ValueError`` before anything is
written; a single row that is no rating becomes a broken row.

| format            | file                                                            | parser in `formats/` |
| ----------------- | --------------------------------------------------------------- | -------------------- |
| `long`, `wide`    | CSV, TSV, JSON Lines, JSON list, Parquet with our columns       | `long_wide`          |
| `page`            | SQLite database of our rating page                              | `page_database`      |
| `label-studio`    | Label Studio's JSON export                                      | `label_studio`       |
| `argilla`         | Argilla's records as JSON or JSON Lines                         | `argilla`            |
| `editreward-data` | TIGER-Lab/EditReward-Data's rows as Parquet, JSON or JSON Lines | `editreward_data`    |
| `imagenhub`       | ImagenHub's rater tables; never found by itself                 | `imagenhub`          |

`auto` tells them apart by the file's first bytes, its ending and its columns.
"""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import Any, Literal, get_args

from stages.annotate.formats import argilla, editreward_data, files, imagenhub, label_studio, long_wide, page_database
from stages.annotate.formats.files import Records, Table
from stages.annotate.ratings.delivery import Delivery

Format = Literal["auto", "long", "wide", "page", "label-studio", "argilla", "editreward-data", "imagenhub"]

_OF_RECORDS: dict[str, Any] = {label_studio.FORMAT: label_studio, argilla.FORMAT: argilla}
"""Formats that only JSON can hold."""


def read(path: str | Path, format: Format = "auto") -> Delivery:
    """Parse a file. Raises ``ValueError`` naming the file, the place and what to do."""
    if format not in get_args(Format):
        raise ValueError(f"there is no format {format!r} of ratings; use one of {', '.join(get_args(Format))}")
    name = PurePath(str(path)).name
    data = files.content(path)
    if format == page_database.FORMAT or (format == "auto" and page_database.recognises(data)):
        return page_database.parse(path, name)
    sha256 = files.sha256(data)
    if format == imagenhub.DATASET:
        return imagenhub.parse(name, files.text(data, name), sha256)
    suffix = PurePath(name).suffix.lower()
    if suffix in (".csv", ".tsv"):
        return _table(files.delimited(files.text(data, name), name), name, sha256, format)
    if suffix in (".jsonl", ".ndjson"):
        return _records(files.json_lines(files.text(data, name), name), name, sha256, format)
    if suffix == ".json":
        return _records(files.json_list(files.text(data, name), name), name, sha256, format)
    if suffix in (".parquet", ".pq"):
        theirs = editreward_data.recognises(files.parquet_columns(data, name))
        wanted = [column for column in files.parquet_columns(data, name) if column in editreward_data.COLUMNS] if theirs else None
        needed = editreward_data.COLUMNS if theirs else long_wide.NEEDED
        return _table(files.parquet(data, name, needed=needed, only=wanted), name, sha256, format)
    raise ValueError(
        f"{name}: ratings are read from .csv, .tsv, .jsonl, .ndjson, .json, .parquet or .pq files "
        f"and from our page's database, not from {suffix!r}"
    )


def _records(found: Records, name: str, sha256: str, format: Format) -> Delivery:
    """JSON records: of an annotation tool, or rows of a table."""
    first = found.records[0][1] if found.records else {}
    for kind, module in _OF_RECORDS.items():
        if format == kind or (format == "auto" and module.recognises(first)):
            return module.parse(found, name, sha256)
    return _table(found.table(), name, sha256, format)


def _table(table: Table, name: str, sha256: str, format: Format) -> Delivery:
    if format in _OF_RECORDS:
        raise ValueError(f"{name} is not JSON, as the format {format} is; export it as JSON")
    if format == editreward_data.FORMAT or (format == "auto" and editreward_data.recognises(table.header)):
        return editreward_data.parse(table, name, sha256)
    assert format in ("auto", "long", "wide")
    return long_wide.parse(table, name, sha256, format)
