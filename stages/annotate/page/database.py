"""The database of the rating page: SQLite in WAL mode, written by one server process, readable at any time.

While a server runs, and after one was killed, the newest rows are in the write-ahead log beside the file. A server that ends puts them into
the file and leaves WAL mode, so a file in WAL mode without its log is known to be incomplete
(:func:`stages.annotate.formats.page_database.require_log`).

Tables (times are ISO 8601 in UTC, scores are numbers of the scale, in a ranking ranks, people appear by their pseudonym only):

``submissions``: one submission of a person for a group, never changed. A later submission is a further row with the next ``revision``.
    submission_id (made by the page: a repeated request is stored once), annotator, group_id, revision (from 1), round (``training``,
    ``exam-1``, ``exam-2``, ``calibration``, ``production``, ``reannotation``, ``pilot``, ``adjudication``, ``benchmark``, ``ranking``),
    flag (null, or why the group cannot be rated: ``source-broken``, ``instruction-impossible``, ``unsafe``, ``image-missing``; it then has
    no scores), comment, seconds (active, of the whole group, of this revision alone), wall_seconds, changes (how often a score was replaced
    before it was sent), submitted_at, rubric_version, scale_min, scale_max, project, content (digest,
    :func:`stages.annotate.formats.page_database.seal`)
``scores``: the scores of a submission: submission_id, candidate_id, dimension, score, position (on the page, from 1)
``assignments``: annotator, group_id, round, opened_at, lease_ends (seconds since 1970; 0: skipped), done (0 or 1)
``drafts``: annotator, group_id, version, body (JSON text), saved_at
``skips``: groups that a person gave back: annotator, group_id, skipped_at, seconds (active), reason, open (0 after the lead has handed the
    group to somebody, or this person has rated it all the same)
``groups``: group_id, place (order of assignment), wanted (people on this page), round
``elsewhere``: group_id, annotator: earlier raters of a group that is re-annotated; they must not get it again
``decisions``: decision_id, made_at, author, subject (a pseudonym or a group), action, reason
``meta``: key, value; ``project`` names the rating task that the database belongs to

Views, the interface for readers:

``ratings``: one row per score that counts: the latest revision of every annotator and group, without training and exams. Columns:
    submission_id, annotator, group_id, candidate_id, dimension, score, round, revision, position, submitted_at, seconds (of all revisions,
    divided by the scores of the latest, at most the day that ingest takes), comment, rubric_version, scale_min, scale_max, project
``unrateable``: the same for groups whose latest revision says that they cannot be rated: submission_id, annotator, group_id, round,
    revision, flag, comment, submitted_at, seconds, project
``hours``: active seconds by annotator and day (of the server's time zone), of all submissions, training and exams included, of skips, and
    of drafts, which have the time of groups that are still open and of earlier ones that were only looked at; groups: number of
    submissions that are no revisions, revisions: of the others, skips
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from stages.annotate.formats.page_database import require_log, unusable
from stages.annotate.ratings.rating_task import ADJUDICATION, BENCHMARK, CALIBRATION, PILOT, PRODUCTION, RANKING, REANNOTATION

DATABASE = "submissions.sqlite"
"""Name of the file in the page's folder."""

CLOSING_ATTEMPTS, CLOSING_PAUSE = 40, 0.05
"""How often, and with how many seconds between, a server that ends tries to leave WAL mode while somebody reads."""

_STARTED = time.time() - time.monotonic()

FLAGS = ("source-broken", "instruction-impossible", "unsafe", "image-missing")
"""Reasons why a group cannot be rated."""

COUNTED = (CALIBRATION, PRODUCTION, REANNOTATION, PILOT, ADJUDICATION, BENCHMARK, RANKING)
"""Rounds whose scores are ratings; the other rounds are training and exams."""

_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS groups (
  group_id TEXT PRIMARY KEY, place INTEGER NOT NULL, wanted INTEGER NOT NULL, round TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS elsewhere (
  group_id TEXT NOT NULL, annotator TEXT NOT NULL, PRIMARY KEY (group_id, annotator)) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS assignments (
  annotator TEXT NOT NULL, group_id TEXT NOT NULL, round TEXT NOT NULL, opened_at TEXT NOT NULL, lease_ends REAL NOT NULL,
  done INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (annotator, group_id)) STRICT;
CREATE INDEX IF NOT EXISTS assignments_of_group ON assignments (group_id, done, lease_ends);
CREATE TABLE IF NOT EXISTS drafts (
  annotator TEXT NOT NULL, group_id TEXT NOT NULL, version INTEGER NOT NULL, body TEXT NOT NULL, saved_at TEXT NOT NULL,
  PRIMARY KEY (annotator, group_id)) STRICT;
CREATE TABLE IF NOT EXISTS submissions (
  submission_id TEXT PRIMARY KEY, annotator TEXT NOT NULL, group_id TEXT NOT NULL, revision INTEGER NOT NULL, round TEXT NOT NULL,
  flag TEXT, comment TEXT NOT NULL, seconds REAL NOT NULL, wall_seconds REAL NOT NULL, changes INTEGER NOT NULL, submitted_at TEXT NOT NULL,
  rubric_version TEXT NOT NULL, scale_min INTEGER NOT NULL, scale_max INTEGER NOT NULL, project TEXT NOT NULL, content TEXT NOT NULL,
  UNIQUE (annotator, group_id, revision)) STRICT;
CREATE TABLE IF NOT EXISTS scores (
  submission_id TEXT NOT NULL REFERENCES submissions, candidate_id TEXT NOT NULL, dimension TEXT NOT NULL, score ANY NOT NULL,
  position INTEGER NOT NULL, PRIMARY KEY (submission_id, candidate_id, dimension)) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS decisions (
  decision_id INTEGER PRIMARY KEY, made_at TEXT NOT NULL, author TEXT NOT NULL, subject TEXT NOT NULL, action TEXT NOT NULL,
  reason TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS skips (
  annotator TEXT NOT NULL, group_id TEXT NOT NULL, skipped_at TEXT NOT NULL, seconds REAL NOT NULL, reason TEXT NOT NULL,
  open INTEGER NOT NULL DEFAULT 1) STRICT;
DROP VIEW IF EXISTS latest;
CREATE VIEW latest AS SELECT *, max(revision), sum(seconds) AS seconds_of_all FROM submissions WHERE round IN {COUNTED}
  GROUP BY annotator, group_id;
DROP VIEW IF EXISTS hours;
CREATE VIEW hours AS
  SELECT annotator, date(at, 'localtime') AS day, round(sum(seconds), 1) AS seconds, sum(kind = 'group') AS groups,
    sum(kind = 'revision') AS revisions, sum(kind = 'skip') AS skips
  FROM (SELECT annotator, submitted_at AS at, seconds, iif(revision = 1, 'group', 'revision') AS kind FROM submissions
    UNION ALL SELECT annotator, skipped_at, seconds, 'skip' FROM skips
    UNION ALL
      SELECT annotator, saved_at, max(0, min(86400, CAST(coalesce(json_extract(body, '$.seconds'), 0) AS REAL))), 'draft' FROM drafts)
  GROUP BY annotator, day;
DROP VIEW IF EXISTS ratings;
CREATE VIEW ratings AS
  SELECT l.submission_id, l.annotator, l.group_id, s.candidate_id, s.dimension, s.score, l.round, l.revision, s.position, l.submitted_at,
    round(min(86400, l.seconds_of_all / (SELECT count(*) FROM scores c WHERE c.submission_id = l.submission_id)), 3) AS seconds, l.comment,
    l.rubric_version, l.scale_min, l.scale_max, l.project
  FROM latest l JOIN scores s USING (submission_id) WHERE l.flag IS NULL;
DROP VIEW IF EXISTS unrateable;
CREATE VIEW unrateable AS
  SELECT submission_id, annotator, group_id, round, revision, flag, comment, submitted_at, seconds_of_all AS seconds, project
  FROM latest WHERE flag IS NOT NULL;
"""


class Database:
    """The connection of the server; a lock serializes its threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        if path.exists() and not path.stat().st_size:
            raise ValueError(f"{path} is empty, so its submissions are lost; restore it from a backup, or delete it to begin without any")
        path.touch(mode=0o600)
        path.chmod(0o600)  # before it is opened: SQLite gives the log the rights of the file
        require_log(path)
        try:
            self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            self._connection.row_factory = sqlite3.Row
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=FULL")  # a submission that was confirmed survives a power failure
            self._connection.executescript(_SCHEMA)
        except sqlite3.DatabaseError as error:
            said = f"{path} cannot be used as the rating page's database ({error}); restore it from a backup or move it away"
            raise unusable(path, error, said) from None

    @contextmanager
    def read(self) -> Generator[sqlite3.Connection]:
        """The connection, for reading."""
        with self._lock:
            yield self._connection

    @contextmanager
    def separate(self) -> Generator[sqlite3.Connection]:
        """A separate read-only connection for long queries, which block nobody."""
        with closing(sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            yield connection

    @contextmanager
    def write(self) -> Generator[sqlite3.Connection]:
        """A transaction: all of the block or nothing."""
        with self._lock, self._connection:  # leaving a connection's block commits, or rolls back after an exception
            self._connection.execute("BEGIN IMMEDIATE")
            yield self._connection

    def belongs_to(self, project: str) -> None:
        """Store the project in a new database; raises ``ValueError`` for a database of another project."""
        with self.write() as connection:
            connection.execute("INSERT OR IGNORE INTO meta VALUES ('project', ?)", (project,))
            (there,) = connection.execute("SELECT value FROM meta WHERE key = 'project'").fetchone()
        if there != project:
            raise ValueError(
                f"{self.path} contains ratings of project {there}, the packet is of project {project}; "
                "move the database away or use another --run"
            )

    def close(self) -> None:
        """Put everything into the file and close it. With a reader that does not end, the log stays beside it."""
        with self._lock:
            for _ in range(CLOSING_ATTEMPTS):
                try:
                    self._connection.execute("PRAGMA journal_mode=DELETE")
                    break
                except sqlite3.OperationalError:
                    time.sleep(CLOSING_PAUSE)
            self._connection.close()


def clock() -> float:
    """Seconds since 1970, for leases: they last as long as they should when somebody sets the machine's clock meanwhile."""
    return _STARTED + time.monotonic()


def now() -> str:
    """The current time in the format of the tables."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
