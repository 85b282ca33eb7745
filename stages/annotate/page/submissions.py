"""Scores and drafts in: every rule that a submission must meet, and what is answered otherwise.

In: what the page sends. Out: rows of ``submissions`` and ``scores``, or :class:`Refused` with an HTTP status and one sentence. A
submission is whole: every candidate in every dimension, or a reason why the group cannot be rated. The same submission sent again is
stored once. A submission that does not know the latest revision is refused (409) and changes nothing. One that comes after the lease has
ended counts all the same.
"""

from __future__ import annotations

import json
import re
import sqlite3
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from stages.annotate.config import AnnotateConfig
from stages.annotate.page import handing_out
from stages.annotate.page.database import COUNTED, Database, now
from stages.annotate.page.work import Work
from stages.engine.ids import settings_hash

LONGEST_COMMENT = 4_000
LONGEST_DRAFT = 32_000
STOPPED = {"paused": "the lead of the project has paused your work", "failed": "you have not passed the exam"}
"""Why nothing is taken from somebody, by the stage."""

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class Refused(Exception):
    """What the page sent cannot be taken. ``status`` is the HTTP status, ``current`` what the page should know."""

    def __init__(self, status: int, message: str, **current: Any) -> None:
        super().__init__(message)
        self.status, self.message, self.current = status, message, current


class Sent(BaseModel):
    """What a page sends: no unknown fields, no guessed types."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Score(Sent):
    """One score, a whole number."""

    candidate_id: str
    dimension: str
    score: int


class Submission(Sent):
    """A group as rated. ``based_on`` is the revision that the page had before it, 0 for none."""

    submission_id: str = Field(pattern=r"^[0-9a-f]{32}$")
    group_id: str
    based_on: int = Field(ge=0)
    scores: list[Score] = Field(max_length=1000)
    flag: Literal["source-broken", "instruction-impossible", "unsafe", "image-missing"] | None = None
    comment: str = Field("", max_length=LONGEST_COMMENT)
    seconds: float = Field(ge=0, le=86_400)
    wall_seconds: float = Field(ge=0)
    changes: int = Field(ge=0)


class Draft(Sent):
    """A group as far as it is rated. ``version`` and ``revision`` are those that the page knows; the body is the page's own."""

    version: int = Field(ge=0)
    revision: int = Field(ge=0)
    body: dict[str, Any]


def store(database: Database, work: Work, config: AnnotateConfig, annotator: str, sent: Submission) -> int:
    """Store a submission and return its revision. From who is paused or has failed the exams nothing is taken; the draft stays."""
    content = settings_hash(annotator, sent.model_dump(mode="json"))
    with database.write() as connection:
        there = connection.execute("SELECT revision, content FROM submissions WHERE submission_id = ?", (sent.submission_id,)).fetchone()
        if there is not None:
            if there["content"] != content:
                raise Refused(409, "another submission has this id; load the page again")
            return there["revision"]
        assigned = _assigned(connection, annotator, sent.group_id)
        order = _check(work, annotator, sent)
        stopped = STOPPED.get(handing_out.stage_of(connection, work, config, annotator))
        if stopped is not None:
            raise Refused(403, f"{stopped}; what you rated of this group is kept as a draft and can be submitted once you go on")
        before = revision(connection, annotator, sent.group_id)
        if before and assigned["round"] not in COUNTED:
            raise Refused(409, "a group of the training or the exam is answered once", revision=before)
        if sent.based_on != before:
            raise Refused(409, "this group was submitted from another window in the meantime", revision=before)
        row = {
            **{
                name: getattr(sent, name) for name in ("submission_id", "group_id", "flag", "comment", "seconds", "wall_seconds", "changes")
            },
            "annotator": annotator,
            "revision": before + 1,
            "round": assigned["round"],
            "submitted_at": now(),
            "rubric_version": work.rubric_version,
            "scale_min": work.levels[0],
            "scale_max": work.levels[-1],
            "project": work.project,
            "content": content,
        }
        connection.execute(f"INSERT INTO submissions ({', '.join(row)}) VALUES ({', '.join(':' + name for name in row)})", row)
        connection.executemany(
            "INSERT INTO scores VALUES (?, ?, ?, ?, ?)",
            [(sent.submission_id, s.candidate_id, s.dimension, s.score, 1 + order.index(s.candidate_id)) for s in sent.scores],
        )
        connection.execute("UPDATE assignments SET done = 1 WHERE annotator = ? AND group_id = ?", (annotator, sent.group_id))
        connection.execute("DELETE FROM drafts WHERE annotator = ? AND group_id = ?", (annotator, sent.group_id))
        return before + 1


def save_draft(database: Database, annotator: str, group_id: str, sent: Draft, *, lease_ends: float) -> int:
    """Keep a draft and the lease of its group; returns the draft's version."""
    body = json.dumps(sent.body, ensure_ascii=False)
    if len(body) > LONGEST_DRAFT:
        raise Refused(413, f"a draft has at most {LONGEST_DRAFT} characters")
    with database.write() as connection:
        _assigned(connection, annotator, group_id)
        known = revision(connection, annotator, group_id)
        if known != sent.revision:
            raise Refused(409, "this group was submitted from another window in the meantime", revision=known)
        there = connection.execute(
            "SELECT version, body FROM drafts WHERE annotator = ? AND group_id = ?", (annotator, group_id)
        ).fetchone()
        version = there["version"] if there else 0
        if version != sent.version:
            draft = json.loads(there["body"]) if there else None
            raise Refused(409, "another window has a newer draft of this group", revision=known, version=version, draft=draft)
        connection.execute("REPLACE INTO drafts VALUES (?, ?, ?, ?, ?)", (annotator, group_id, version + 1, body, now()))
        connection.execute("UPDATE assignments SET lease_ends = ? WHERE annotator = ? AND group_id = ?", (lease_ends, annotator, group_id))
        return version + 1


def revision(connection: sqlite3.Connection, annotator: str, group_id: str) -> int:
    """The latest revision of what somebody said about a group, 0 for nothing."""
    (found,) = connection.execute(
        "SELECT coalesce(max(revision), 0) FROM submissions WHERE annotator = ? AND group_id = ?", (annotator, group_id)
    ).fetchone()
    return found


def said(connection: sqlite3.Connection, annotator: str, group_id: str) -> dict[str, Any] | None:
    """The latest revision with its scores by candidate and dimension, or None."""
    row = connection.execute(
        "SELECT submission_id, revision, flag, comment FROM submissions WHERE annotator = ? AND group_id = ? "
        "ORDER BY revision DESC LIMIT 1",
        (annotator, group_id),
    ).fetchone()
    if row is None:
        return None
    scores: dict[str, dict[str, int]] = {}
    for score in connection.execute("SELECT candidate_id, dimension, score FROM scores WHERE submission_id = ?", (row["submission_id"],)):
        scores.setdefault(score["candidate_id"], {})[score["dimension"]] = score["score"]
    return {"revision": row["revision"], "flag": row["flag"], "comment": row["comment"], "scores": scores}


def draft(connection: sqlite3.Connection, annotator: str, group_id: str) -> dict[str, Any] | None:
    """The draft of a group as ``version`` and ``body``, or None."""
    row = connection.execute("SELECT version, body FROM drafts WHERE annotator = ? AND group_id = ?", (annotator, group_id)).fetchone()
    return None if row is None else {"version": row["version"], "body": json.loads(row["body"])}


def _assigned(connection: sqlite3.Connection, annotator: str, group_id: str) -> sqlite3.Row:
    row = connection.execute("SELECT round FROM assignments WHERE annotator = ? AND group_id = ?", (annotator, group_id)).fetchone()
    if row is None:
        raise Refused(403, "this group was not given to you")
    return row


def _check(work: Work, annotator: str, sent: Submission) -> list[str]:
    """Refuse what is not whole or not of this group; returns the candidates in the order in which they were shown."""
    if _CONTROL.search(sent.comment):
        raise Refused(422, "the comment has control characters")
    if sent.group_id not in work.groups:
        raise Refused(409, "this group is no longer part of the work")
    order = work.order(sent.group_id, annotator)
    if sent.flag is not None:
        if sent.scores:
            raise Refused(422, "a group that cannot be rated has no scores")
        return order
    wanted = {(candidate, dimension) for candidate in order for dimension in work.dimensions}
    given = [(score.candidate_id, score.dimension) for score in sent.scores]
    strange = [cell for cell in given if cell not in wanted]
    if strange:
        raise Refused(422, f"candidate {strange[0][0]} in dimension {strange[0][1]} is not of this group")
    if len(set(given)) < len(given):
        raise Refused(422, "a candidate has two scores in one dimension")
    if len(given) < len(wanted):
        raise Refused(422, f"{len(wanted) - len(given)} of {len(wanted)} scores are missing")
    outside = [score.score for score in sent.scores if score.score not in work.levels]
    if outside:
        raise Refused(422, f"score {outside[0]} is not on the scale {work.levels[0]} to {work.levels[-1]}")
    return order
