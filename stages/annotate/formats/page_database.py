"""The SQLite database of our rating page (`pipeline annotate serve`), read as it stands, also while the page is in use.

In: the database with its views ``ratings`` (the latest revision of every annotator and group; training and exams are not in it),
``unrateable`` and ``latest``. Out: one rating per row of ``ratings``, and the history of what was said about each group. A
group that an annotator flagged as impossible to rate has no scores: it is set aside once as ``unrateable``, with the flag and the comment.
The hash of the delivery is that of the rows, because SQLite keeps part of them in other files.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from stages.annotate.formats.files import plain, sha256
from stages.annotate.ratings.delivery import Broken, Delivered, Delivery, Revision

FORMAT = "page"

_RATINGS = (
    "SELECT group_id, candidate_id, dimension, annotator, score, submitted_at, round, seconds, comment, rubric_version, submission_id, "
    "project, scale_min, scale_max FROM ratings ORDER BY group_id, annotator, candidate_id, dimension"
)
"""The columns of :class:`Delivered`, in its order."""
_UNRATEABLE = "SELECT group_id, annotator, flag, comment FROM unrateable ORDER BY group_id, annotator"

_REVISIONS = (
    "SELECT s.submission_id, s.group_id, s.annotator, s.revision FROM submissions s JOIN latest l USING (annotator, group_id) "
    "ORDER BY s.group_id, s.annotator, s.revision"
)
"""The columns of :class:`Revision`, in its order."""


def recognises(data: bytes) -> bool:
    """Whether a file begins as SQLite's do."""
    return data.startswith(b"SQLite format 3\0")


def parse(path: str | Path, name: str) -> Delivery:
    """The ratings of the database. Raises ``ValueError`` for a remote or damaged file, one of something else, and one without ratings."""
    try:
        with closing(sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True)) as connection:
            connection.execute("BEGIN")  # everything as of one moment
            ratings, unrateable, revisions = (connection.execute(query).fetchall() for query in (_RATINGS, _UNRATEABLE, _REVISIONS))
    except sqlite3.DatabaseError as error:
        raise ValueError(
            f"{name} cannot be read as the rating page's database ({error}); give the local file that `annotate serve` wrote"
        ) from None
    if not ratings and not unrateable:
        raise ValueError(f"{name} has no ratings yet: nobody has submitted a group outside training and exams")
    rows = [Delivered(number, *map(plain, cells)) for number, cells in enumerate(ratings, start=1)]
    broken = [
        Broken(number, "unrateable", f"{annotator} flagged group {group} as {flag}" + (f": {comment[:200]}" if comment else ""))
        for number, (group, annotator, flag, comment) in enumerate(unrateable, start=len(ratings) + 1)
    ]
    said = [Revision(*cells) for cells in revisions]
    return Delivery(name, sha256(json.dumps([ratings, unrateable]).encode()), FORMAT, "row", rows, broken, revisions=said)
