"""The SQLite database of the rating page (`pipeline annotate serve`). It can be read while the page is in use.

In: the database with its views ``ratings`` (the latest revision of every annotator and group, without training and exams), ``unrateable``
and ``latest``. Out: one rating per row of ``ratings``, and the revision history of each group. A group that an annotator flagged as
impossible to rate has no scores; it becomes one invalid row ``unrateable`` with the flag and the comment. The hash of the delivery is
that of the rows, not of the file: SQLite may still have new rows in its write-ahead log.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from contextlib import closing
from pathlib import Path

from stages.annotate.formats.files import RatingFile, plain
from stages.annotate.ratings.delivery import Delivery, InvalidRow, RawRating, Revision

FORMAT = "page"

_RATINGS = (
    "SELECT group_id, candidate_id, dimension, annotator, score, submitted_at, round, seconds, comment, rubric_version, submission_id, "
    "project, scale_min, scale_max FROM ratings ORDER BY group_id, annotator, candidate_id, dimension"
)
"""The fields of :class:`RawRating` in their order."""
_UNRATEABLE = "SELECT group_id, annotator, flag, comment FROM unrateable ORDER BY group_id, annotator"

_REVISIONS = (
    "SELECT s.submission_id, s.group_id, s.annotator, s.revision FROM submissions s JOIN latest l USING (annotator, group_id) "
    "ORDER BY s.group_id, s.annotator, s.revision"
)
"""The fields of :class:`Revision` in their order."""


def recognises(file: RatingFile) -> bool:
    """Whether the file is an SQLite database."""
    return file.data.startswith(b"SQLite format 3\0")


def parse(file: RatingFile) -> Delivery:
    """The ratings of the database. Raises ``ValueError`` for a remote, damaged or foreign database, and for one without ratings."""
    name = file.name
    try:
        with closing(sqlite3.connect(f"{Path(file.path).absolute().as_uri()}?mode=ro", uri=True)) as connection:
            connection.execute("BEGIN")  # one snapshot for all queries
            ratings, unrateable, revisions = (connection.execute(query).fetchall() for query in (_RATINGS, _UNRATEABLE, _REVISIONS))
    except sqlite3.DatabaseError as error:
        raise ValueError(
            f"{name} cannot be read as the rating page's database ({error}); give the local file that `annotate serve` wrote"
        ) from None
    if not ratings and not unrateable:
        raise ValueError(f"{name} has no ratings yet: nobody has submitted a group outside training and exams")
    rows = [RawRating(number, *map(plain, cells)) for number, cells in enumerate(ratings, start=1)]
    invalid = [
        InvalidRow(number, "unrateable", f"{annotator} flagged group {group} as {flag}" + (f": {comment[:200]}" if comment else ""))
        for number, (group, annotator, flag, comment) in enumerate(unrateable, start=len(ratings) + 1)
    ]
    sha256 = hashlib.sha256(json.dumps([ratings, unrateable]).encode()).hexdigest()
    return Delivery(name, sha256, FORMAT, "row", rows, invalid, revisions=[Revision(*cells) for cells in revisions])
