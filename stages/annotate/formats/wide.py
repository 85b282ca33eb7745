"""Format ``wide``: a table in our columns with one row per candidate and one column per dimension."""

from __future__ import annotations

from stages.annotate.formats.files import RatingFile
from stages.annotate.formats.long import our_table
from stages.annotate.ratings.delivery import COLUMNS, REQUIRED, Delivery, RawRating, spelled

SHARED = tuple(column for column in COLUMNS if column not in ("dimension", "score"))
"""Columns that all ratings of a row share."""


def recognises(file: RatingFile) -> bool:
    """Whether there are columns of dimensions and no column of scores."""
    columns = [spelled(column.strip()) for column in file.header]
    return "score" not in columns and not set(file.dimensions).isdisjoint(columns)


def parse(file: RatingFile) -> Delivery:
    """Ratings of the table. Raises ``ValueError`` as the format ``long`` does, and when there is no column of a dimension."""
    table, columns, warnings = our_table(file, [column for column in REQUIRED if column in SHARED], file.dimensions)
    dimensions = [dimension for dimension in file.dimensions if dimension in columns]
    if not dimensions:
        raise ValueError(f"{file.name} has no column of scores: a wide file has one or more of {', '.join(file.dimensions)}")
    shared = {column: columns.index(column) for column in SHARED if column in columns}
    rows = [
        RawRating(number, dimension=name, score=cells[columns.index(name)].strip(), **{c: cells[i].strip() for c, i in shared.items()})
        for number, cells in table.rows
        for name in dimensions
    ]
    return Delivery(file.name, file.sha256, "wide", table.counts_in, rows, table.invalid, warnings)
