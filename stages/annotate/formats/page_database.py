"""The SQLite database of the rating page (`pipeline annotate serve`). It can be read while the page is in use.

In: the database with its views ``ratings`` (the latest revision of every annotator and group, without training and exams), ``unrateable``
and ``latest``. Out: one rating per row of ``ratings``, and the revision history of each group. A group that an annotator flagged as
impossible to rate has no scores; it becomes one invalid row ``unrateable`` with the flag and the comment. The hash of the delivery is
that of the rows, not of the file: SQLite may still have new rows in its write-ahead log.

The page stores a digest with every submission (:func:`seal`), which covers the submission, its scores and the digest before it. A database
in which somebody changed, added or removed a submission is refused, unless the last ones were removed or the digests computed again.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

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
    "SELECT s.submission_id, s.group_id, s.annotator, "
    "s.revision + max(CAST(86400000 * (julianday(s.submitted_at) - 2440587.5) AS INTEGER)) OVER "
    "(PARTITION BY s.annotator, s.group_id ORDER BY s.revision) FROM submissions s JOIN latest l USING (annotator, group_id) "
    "ORDER BY s.group_id, s.annotator, s.revision"
)
"""The fields of :class:`Revision` in their order. The page counts from 1, and does so again after a backup is put back. Therefore the
number here is the time in milliseconds since 1970 (the latest one so far, where the clock was set back) plus the page's number."""

_SUBMITTED = (
    "submission_id, annotator, group_id, revision, round, flag, comment, seconds, wall_seconds, changes, submitted_at, rubric_version, "
    "scale_min, scale_max, project"
)
_SCORES = "SELECT candidate_id, dimension, score, position FROM scores WHERE submission_id = ? ORDER BY candidate_id, dimension"


_WAL = b"\x02\x02"
"""Bytes 18 and 19 of a file in WAL mode (SQLite, Database File Format, section 1.3.3)."""


def require_log(path: Path) -> None:
    """Raise ``ValueError`` for a database in WAL mode without its write-ahead log, which lacks the newest ratings."""
    for pause in (0.2, 0.0):  # a server that starts or ends changes the file and the log one after the other
        with open(path, "rb") as file:
            if file.read(20)[18:] != _WAL or path.with_name(f"{path.name}-wal").exists():
                return
        time.sleep(pause)
    raise ValueError(
        f"{path} lacks its write-ahead log {path.name}-wal, which contains the newest ratings; use a copy that `pipeline annotate backup` "
        "made (docs/annotation.md, Backups)"
    )


def unusable(path: Path | str, error: sqlite3.DatabaseError, otherwise: str) -> ValueError:
    """What to raise for a database that SQLite cannot use; ``otherwise``: the sentence, unless it is locked or its disk is full, which
    passes and is no reason to put a backup in its place."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return ValueError(f"{path} is locked by another program; end that program and run the same command again: nothing is lost")
    if code == sqlite3.SQLITE_FULL:
        return ValueError(f"the disk of {path} is full; make room and run the same command again: nothing is lost")
    return ValueError(otherwise)


def seal(connection: sqlite3.Connection, submission: str) -> None:
    """Store the digest of the submission that was added last, as it is in the database."""
    before = connection.execute("SELECT content FROM submissions ORDER BY rowid DESC LIMIT 1 OFFSET 1").fetchone()
    row = connection.execute(f"SELECT {_SUBMITTED} FROM submissions WHERE submission_id = ?", (submission,)).fetchone()
    digest = _digest(connection, before[0] if before else "", row)
    connection.execute("UPDATE submissions SET content = ? WHERE submission_id = ?", (digest, submission))


def _digest(connection: sqlite3.Connection, before: str, submission: Sequence[Any]) -> str:
    """Hash of a submission, of its scores, and of the digest ``before`` it."""
    scores = [list(score) for score in connection.execute(_SCORES, (submission[0],))]
    return hashlib.sha256(json.dumps([before, list(submission), scores], default=repr).encode()).hexdigest()


def _require_unchanged(connection: sqlite3.Connection, name: str) -> None:
    """Raise ``ValueError`` naming a submission that differs from its digest."""
    before = ""
    for content, *submission in connection.execute(f"SELECT content, {_SUBMITTED} FROM submissions ORDER BY rowid"):
        if content != _digest(connection, before, submission):
            raise ValueError(
                f"{name}: submission {submission[0]} ({submission[1]}, group {submission[2]}) is not as the page stored it, or one before "
                "it was removed; ingest a backup that was made before the change (docs/annotation.md, Backups)"
            )
        before = content


def recognises(file: RatingFile) -> bool:
    """Whether the file is an SQLite database."""
    return file.data.startswith(b"SQLite format 3\0")


def parse(file: RatingFile) -> Delivery:
    """The ratings of the database. Raises ``ValueError`` for a remote, damaged, incomplete, changed or foreign database, and for one
    without ratings."""
    name = file.name
    if "://" not in str(file.path):
        require_log(Path(file.path))
    try:
        with closing(sqlite3.connect(f"{Path(file.path).absolute().as_uri()}?mode=ro", uri=True)) as connection:
            connection.execute("BEGIN")  # one snapshot for all queries
            _require_unchanged(connection, name)
            ratings, unrateable, revisions = (connection.execute(query).fetchall() for query in (_RATINGS, _UNRATEABLE, _REVISIONS))
    except sqlite3.DatabaseError as error:
        said = f"{name} cannot be read as the rating page's database ({error}); give the local file that `annotate serve` wrote"
        raise unusable(name, error, said) from None
    if not ratings and not unrateable:
        raise ValueError(f"{name} has no ratings yet: nobody has submitted a group outside training and exams")
    rows = [RawRating(number, *map(plain, cells)) for number, cells in enumerate(ratings, start=1)]
    invalid = [
        InvalidRow(number, "unrateable", f"{annotator} flagged group {group} as {flag}" + (f": {comment[:200]}" if comment else ""))
        for number, (group, annotator, flag, comment) in enumerate(unrateable, start=len(ratings) + 1)
    ]
    sha256 = hashlib.sha256(json.dumps([ratings, unrateable]).encode()).hexdigest()
    return Delivery(name, sha256, FORMAT, "row", rows, invalid, revisions=[Revision(*cells) for cells in revisions])
