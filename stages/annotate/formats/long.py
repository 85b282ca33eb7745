"""Format ``long``: a table in our columns with one row per rating. Warnings name the columns that are not read; one whose name is almost
that of a column that we read is refused, because its content would be lost."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from stages.annotate.formats.files import RatingFile, Table
from stages.annotate.ratings.delivery import COLUMNS, OPTIONAL, REQUIRED, SCORES_GIVEN, Delivery, RawRating, spelled

MISSPELT = 0.85
"""Similarity (difflib) above which an unknown column is taken for a misspelt one."""


def recognises(file: RatingFile) -> bool:
    """Always true: this is the last format of the table, and its parser says what is missing."""
    return True


def parse(file: RatingFile) -> Delivery:
    """Ratings of the table. Raises ``ValueError`` when there are none, and for a missing or duplicate column."""
    table, columns, warnings = our_table(file, REQUIRED, ())
    index = {column: columns.index(column) for column in COLUMNS if column in columns}
    rows = [RawRating(number, **{column: cells[i].strip() for column, i in index.items()}) for number, cells in table.rows]
    return Delivery(file.name, file.sha256, "long", table.counts_in, rows, table.invalid, warnings)


def our_table(file: RatingFile, required: Sequence[str], scores: Sequence[str]) -> tuple[Table, list[str], list[str]]:
    """The table, its column names and warnings about columns that are not read. scores: columns read beside the usual ones."""
    name, table = file.name, file.table(needed=COLUMNS + file.dimensions)
    if not table.rows and not table.invalid:
        raise ValueError(f"{name} has no ratings: it contains only column names; fill it in or leave it out")
    columns = [spelled(column.strip()) for column in table.header]
    duplicate = sorted({column for column in columns if columns.count(column) > 1 and column in COLUMNS + file.dimensions})
    if duplicate:
        raise ValueError(f"{name} has the column {duplicate[0]} twice; keep one")
    missing = [column for column in required if column not in columns]
    if missing:
        close = difflib.get_close_matches(missing[0], columns, 1)
        hint = f"; is {close[0]!r} meant?" if close else ""
        if columns[:1] == ["uid"]:
            hint = "; a table of uid by editors is read with the format imagenhub"
        plural = "s" if len(missing) > 1 else ""
        raise ValueError(f"{name} lacks the column{plural} {', '.join(missing)} (it has {', '.join(columns) or 'none'}){hint}")
    known = {*required, *OPTIONAL, SCORES_GIVEN, *scores}
    for column in columns:
        meant = difflib.get_close_matches(column, sorted(known - set(columns)), 1, MISSPELT) if column not in known else []
        if meant:
            raise ValueError(f"{name}: column {column!r} is not known; is {meant[0]!r} meant? rename the column or remove it")
    return table, columns, [f"{name}: column {column!r} is not read" for column in columns if column not in known]
