"""Incoming submissions and drafts, and the rules that they must meet.

In: requests of the page. Out: rows of ``submissions`` and ``scores``, or :class:`Refused` with an HTTP status and one sentence. A
submission is complete: every candidate in every dimension, or a reason why the group cannot be rated. A repeated request is stored once. A
submission that is not based on the latest revision is refused (409). A submission after the end of the lease is accepted.
"""

from __future__ import annotations

import json
import re
import sqlite3
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from stages.annotate.config import AnnotateConfig
from stages.annotate.formats import page_database
from stages.annotate.page import adjudication, assignment
from stages.annotate.page.database import COUNTED, Database, now
from stages.annotate.page.packet import Packet
from stages.annotate.ratings.rating_task import ADJUDICATION

LONGEST_COMMENT = 4_000
LONGEST_DRAFT = 32_000
STOPPED = {"paused": "the lead of the project has paused your work", "failed": "you have not passed the exam"}
"""Reasons not to accept submissions, by stage."""

IMAGE_MISSING = "image-missing"
"""The flag that is accepted only where the packet lacks an image: a lost connection does not make a group impossible to rate."""

SENT = ("submission_id", "group_id", "flag", "comment", "seconds", "wall_seconds", "changes", "rubric_version")
"""Fields of a submission that are stored as they are sent."""

NOT_ASSIGNED = "this group is not assigned to you"

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class Refused(Exception):
    """A refused request. ``status`` is the HTTP status, ``current`` further data for the page."""

    def __init__(self, status: int, message: str, **current: Any) -> None:
        super().__init__(message)
        self.status, self.message, self.current = status, message, current


class PageRequest(BaseModel):
    """A request body: no unknown fields, no type conversion."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _is_text(cls, value: Any) -> Any:
        if isinstance(value, bytes):
            raise ValueError("the body should be JSON, with the Content-Type application/json")
        try:
            json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        except (UnicodeEncodeError, RecursionError):
            raise ValueError("half of a surrogate pair, which is no text, or too many levels") from None
        return value


class SentScore(PageRequest):
    """One score of the scale, or a rank."""

    candidate_id: str
    dimension: str
    score: int | float


class Submission(PageRequest):
    """A rated group. ``based_on`` is the latest revision that the page knows, 0 for none; ``rubric_version`` the rubric that it showed."""

    submission_id: str = Field(pattern=r"^[0-9a-f]{32}$")
    group_id: str
    based_on: int = Field(ge=0)
    scores: list[SentScore] = Field(max_length=1000)
    flag: Literal["source-broken", "instruction-impossible", "unsafe", "image-missing"] | None = None
    comment: str = Field("", max_length=LONGEST_COMMENT)
    seconds: float = Field(ge=0, le=86_400)
    wall_seconds: float = Field(ge=0, le=1e9)
    changes: int = Field(ge=0, le=10**9)
    rubric_version: str = Field(max_length=200)


class Skip(PageRequest):
    """A group that a person gives back."""

    group_id: str
    reason: str = Field("", max_length=LONGEST_COMMENT)
    seconds: float = Field(ge=0, le=86_400)


class Draft(PageRequest):
    """A partly rated group. ``version`` and ``revision`` are the latest that the page knows; only the page interprets the body."""

    version: int = Field(ge=0)
    revision: int = Field(ge=0)
    body: dict[str, Any]


def store(database: Database, packet: Packet, config: AnnotateConfig, annotator: str, sent: Submission) -> int:
    """Store a submission and return its revision. Submissions of a paused person, or after a failed exam, are refused; the draft stays."""
    with database.write() as connection:
        there = connection.execute("SELECT * FROM submissions WHERE submission_id = ?", (sent.submission_id,)).fetchone()
        if there is not None:
            given = {(score.candidate_id, score.dimension): score.score for score in sent.scores}
            same = [there[name] for name in SENT] == [getattr(sent, name) for name in SENT]
            if not same or there["annotator"] != annotator or _scores(connection, sent.submission_id) != given:
                raise Refused(409, "another submission has this id; load the page again")
            return there["revision"]
        round = round_of(connection, annotator, sent.group_id)
        order = _check(connection, packet, annotator, round, sent)
        stopped = STOPPED.get(assignment.stage_of(connection, packet, config, annotator))
        if stopped is not None:
            raise Refused(403, f"{stopped}; your scores of this group are kept as a draft and can be submitted when you continue")
        round_levels = packet.levels_of(sent.group_id, round)
        before = revision(connection, annotator, sent.group_id)
        if before and round not in COUNTED:
            raise Refused(409, "a training or exam group can be submitted only once", revision=before)
        if sent.based_on != before:
            raise Refused(409, "this group was submitted from another window in the meantime", revision=before)
        row = {
            **{name: getattr(sent, name) for name in SENT},
            "annotator": annotator,
            "revision": before + 1,
            "round": round,
            "submitted_at": now(),
            "scale_min": round_levels[0],
            "scale_max": round_levels[-1],
            "project": packet.project,
            "content": "",
        }
        connection.execute(f"INSERT INTO submissions ({', '.join(row)}) VALUES ({', '.join(':' + name for name in row)})", row)
        connection.executemany(
            "INSERT INTO scores VALUES (?, ?, ?, ?, ?)",
            [(sent.submission_id, s.candidate_id, s.dimension, s.score, 1 + order.index(s.candidate_id)) for s in sent.scores],
        )
        page_database.seal(connection, sent.submission_id)
        assignment.keep_slot(connection, annotator, sent.group_id)
        connection.execute("UPDATE assignments SET done = 1 WHERE annotator = ? AND group_id = ?", (annotator, sent.group_id))
        adjudication.update_done(connection, packet, [sent.group_id])
        connection.execute("DELETE FROM drafts WHERE annotator = ? AND group_id = ?", (annotator, sent.group_id))
        connection.execute("UPDATE skips SET open = 0 WHERE annotator = ? AND group_id = ?", (annotator, sent.group_id))
        return before + 1


def skip(database: Database, annotator: str, sent: Skip) -> None:
    """Give a group back: somebody else gets it, this person does not again unless the lead hands it over. Its draft is deleted. Groups that
    everybody rates (training, exams, calibration) and submitted ones cannot be skipped. A repeated request is stored once."""
    if _CONTROL.search(sent.reason):
        raise Refused(422, "the reason has control characters")
    with database.write() as connection:
        if round_of(connection, annotator, sent.group_id) not in assignment.LAST:
            raise Refused(409, "everybody rates this group, so it cannot be skipped")
        if revision(connection, annotator, sent.group_id):
            raise Refused(409, "you have submitted this group, so it cannot be skipped")
        if _is_skipped(connection, annotator, sent.group_id):
            return
        who = (annotator, sent.group_id)
        connection.execute("UPDATE assignments SET lease_ends = 0 WHERE annotator = ? AND group_id = ?", who)
        connection.execute("DELETE FROM drafts WHERE annotator = ? AND group_id = ?", who)
        connection.execute("INSERT INTO skips VALUES (?, ?, ?, ?, ?, 1)", (*who, now(), sent.seconds, sent.reason))


def save_draft(database: Database, annotator: str, group_id: str, sent: Draft, *, lease_ends: float) -> int:
    """Store a draft and renew the lease of its group; returns the draft's version."""
    body = json.dumps(sent.body, ensure_ascii=False)
    if len(body) > LONGEST_DRAFT:
        raise Refused(413, f"a draft has at most {LONGEST_DRAFT} characters")
    with database.write() as connection:
        round_of(connection, annotator, group_id)
        if _is_skipped(connection, annotator, group_id):
            raise Refused(409, "you have skipped this group; load the page again")
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
    """The latest revision of a person's submission for a group, 0 for none."""
    (found,) = connection.execute(
        "SELECT coalesce(max(revision), 0) FROM submissions WHERE annotator = ? AND group_id = ?", (annotator, group_id)
    ).fetchone()
    return found


def latest(connection: sqlite3.Connection, annotator: str, group_id: str) -> dict[str, Any] | None:
    """The latest submission with its scores by candidate and dimension, or None."""
    row = connection.execute(
        "SELECT submission_id, revision, flag, comment FROM submissions WHERE annotator = ? AND group_id = ? "
        "ORDER BY revision DESC LIMIT 1",
        (annotator, group_id),
    ).fetchone()
    if row is None:
        return None
    scores: dict[str, dict[str, float]] = {}
    for (candidate, dimension), score in _scores(connection, row["submission_id"]).items():
        scores.setdefault(candidate, {})[dimension] = score
    return {"revision": row["revision"], "flag": row["flag"], "comment": row["comment"], "scores": scores}


def _scores(connection: sqlite3.Connection, submission: str) -> dict[tuple[str, str], float]:
    """Scores of a submission by candidate and dimension."""
    rows = connection.execute("SELECT candidate_id, dimension, score FROM scores WHERE submission_id = ?", (submission,))
    return {(candidate, dimension): score for candidate, dimension, score in rows}


def draft(connection: sqlite3.Connection, annotator: str, group_id: str) -> dict[str, Any] | None:
    """The draft of a group as ``version`` and ``body``, or None."""
    row = connection.execute("SELECT version, body FROM drafts WHERE annotator = ? AND group_id = ?", (annotator, group_id)).fetchone()
    return None if row is None else {"version": row["version"], "body": json.loads(row["body"])}


def round_of(connection: sqlite3.Connection, annotator: str, group_id: str) -> str:
    """Round in which a group is assigned to a person; refuses a group that is not."""
    row = connection.execute("SELECT round FROM assignments WHERE annotator = ? AND group_id = ?", (annotator, group_id)).fetchone()
    if row is None:
        raise Refused(403, NOT_ASSIGNED)
    return row["round"]


def _is_skipped(connection: sqlite3.Connection, annotator: str, group_id: str) -> bool:
    """Whether a person gave a group back and has not got it from the lead since."""
    query = "SELECT 1 FROM assignments WHERE annotator = ? AND group_id = ? AND done = 0 AND lease_ends = 0"
    return connection.execute(query, (annotator, group_id)).fetchone() is not None


def _check(connection: sqlite3.Connection, packet: Packet, annotator: str, round: str, sent: Submission) -> list[str]:
    """Refuse an incomplete or wrong submission; returns the candidates in the order shown. An adjudication may lack cells that an export
    has added since the group was opened."""
    if _CONTROL.search(sent.comment):
        raise Refused(422, "the comment has control characters")
    if sent.group_id not in packet.groups:
        raise Refused(409, "this group is no longer part of the project")
    if sent.rubric_version not in packet.versions:
        raise Refused(422, f"there is no rubric {sent.rubric_version!r} in this project; load the page again")
    order = packet.order(sent.group_id, annotator)
    if sent.flag is not None:
        if sent.scores:
            raise Refused(422, "a group that cannot be rated has no scores")
        if sent.flag == IMAGE_MISSING and packet.has_images(sent.group_id):
            raise Refused(422, "the server has all images of this group; load the page again to see them")
        return order
    wanted, levels = packet.cells(sent.group_id, round), packet.levels_of(sent.group_id, round)
    given = [(score.candidate_id, score.dimension) for score in sent.scores]
    foreign = [cell for cell in given if cell not in wanted]
    if foreign:
        raise Refused(422, f"candidate {foreign[0][0]} in dimension {foreign[0][1]} is not asked for in this group")
    if len(set(given)) < len(given):
        raise Refused(422, "a candidate has two scores in one dimension")
    needed = (adjudication.submitted(connection, annotator, sent.group_id) or set(given)) if round == ADJUDICATION else set(wanted)
    missing = len(needed.difference(given)) if given else len(wanted)
    if missing:
        raise Refused(422, f"{missing} of {len(wanted)} scores are missing")
    outside = [score.score for score in sent.scores if score.score not in levels]
    if outside:
        raise Refused(422, f"score {outside[0]!s:.20} is not on the scale {levels[0]:g} to {levels[-1]:g}")
    return order
