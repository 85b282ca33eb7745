"""Tables with our column names: ``long`` has a row per rating, ``wide`` a row per candidate with a column per dimension.

In: a :class:`~stages.annotate.formats.files.Table`. Out: delivered ratings. Columns that nobody reads are named in a warning.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Literal

from stages.annotate.formats.files import Row, Table
from stages.annotate.ratings.delivery import COLUMNS, DIMENSION_ALIASES, OPTIONAL, REQUIRED, SCORES_GIVEN, Delivered, Delivery
from stages.engine.contracts import DIMENSIONS

NEEDED = frozenset(COLUMNS + DIMENSIONS)
"""Columns that a table must be able to give as text."""


def parse(table: Table, name: str, sha256: str, format: Literal["auto", "long", "wide"]) -> Delivery:
    """The ratings of a table. Raises ``ValueError`` when there are none, or when a column is missing or there twice."""
    if not table.rows and not table.broken:
        raise ValueError(f"{name} has no ratings: it holds only column names; fill it in or leave it out")
    shape, columns, warnings = _shape(table.header, name, format)
    rows = list((_long if shape == "long" else _wide)(columns, table.rows))
    return Delivery(name, sha256, shape, table.counts_in, rows, table.broken, warnings)


def _shape(header: Sequence[str], name: str, format: str) -> tuple[str, list[str], list[str]]:
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
    known = {*required, *OPTIONAL, SCORES_GIVEN} | (set(dimensions) if shape == "wide" else set())
    return shape, columns, [f"{name}: column {column!r} is not read" for column in columns if column not in known]


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
