"""Which group somebody rates next.

In: the plan, what the person has done, what others hold. Out: assignments. The way of a person: training with feedback, an exam (a second
form for who fails the first), the calibration groups, then production. Without gold there is neither training nor exam. A group may get
another role with a later export; what somebody has rated stays rated, in whatever role, and is not given to the same person again.

In production a group has as many places as people are wanted for it; one that is rated again has places for those who rated it here and
one more. A place is taken by a submission, or by a lease while somebody has the group open. Groups that another person has rated and that
want one more come first, those of the partner with whom this person shares fewest groups first of all; so the overlap is filled as the work
goes on and everybody meets everybody. Gold groups hidden in production are drawn by a hash of the person and of how many groups the person
had.
"""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

from stages.annotate.config import AnnotateConfig
from stages.annotate.page import exam
from stages.annotate.page.database import COUNTED, Database, now
from stages.annotate.page.work import Work
from stages.annotate.ratings.gold import OnGold
from stages.annotate.ratings.rounds import PRODUCTION, REANNOTATION
from stages.engine.ids import uniform

Stage = Literal["training", "exam-1", "exam-2", "calibration", "production", "paused", "failed"]

LAST = (PRODUCTION, REANNOTATION)
"""Rounds of the last stage."""

_TAKEN = "SELECT count(*) FROM assignments a WHERE a.group_id = g.group_id AND a.annotator != :who AND (a.done = 1 OR a.lease_ends > :time)"
_MINE = (
    "(EXISTS (SELECT 1 FROM assignments a WHERE a.group_id = g.group_id AND a.annotator = :who) "
    "OR EXISTS (SELECT 1 FROM elsewhere e WHERE e.group_id = g.group_id AND e.annotator = :who))"
)


class Handed(NamedTuple):
    """stage: where the person is; groups: the one to rate now and those after it; done, total: groups of this stage (0: open end)."""

    stage: Stage
    groups: list[str]
    done: int
    total: int


def fill(database: Database, work: Work) -> None:
    """Bring the groups of the plan into the database; places that the lead added stay. The same plan again changes nothing."""
    with database.write() as connection:
        more = {row["group_id"]: row["wanted"] for row in connection.execute("SELECT group_id, wanted FROM groups")}
        here = {(row["group_id"], row["annotator"]) for row in connection.execute("SELECT * FROM assignments WHERE done = 1")}
        connection.execute("DELETE FROM groups")
        connection.execute("DELETE FROM elsewhere")
        connection.executemany("INSERT INTO elsewhere VALUES (?, ?)", [(g, name) for g, names in work.plan.rated.items() for name in names])
        rows = []
        for place, (group, wanted) in enumerate(work.plan.wanted.items()):
            before = work.plan.rated.get(group, ())
            people = wanted + sum((group, name) in here for name in before)
            rows.append((group, place, max(people, more.get(group, 0)), REANNOTATION if before else PRODUCTION))
        connection.executemany("INSERT INTO groups VALUES (?, ?, ?, ?)", rows)


def hand_out(database: Database, work: Work, config: AnnotateConfig, annotator: str, *, count: int) -> Handed:
    """The groups for now, at most ``count``; opens or renews their leases."""
    with database.write() as connection:
        stage = stage_of(connection, work, config, annotator)
        ends = time.time() + 60 * config.serve.lease_minutes
        if stage in ("paused", "failed"):
            return Handed(stage, [], 0, 0)
        listed = _listed(stage, work)
        if listed:
            done = _done(connection, annotator)
            groups = [group for group in listed if group not in done][:count]
            for group in groups:
                _assign(connection, annotator, group, stage, ends)
            return Handed(stage, groups, sum(group in done for group in listed), len(listed))
        groups = _still_open(connection, work, annotator)[:count]
        for group in groups:
            _assign(connection, annotator, group, _round(connection, group), ends)
        while len(groups) < count and (group := _pick(connection, work, annotator)) is not None:
            _assign(connection, annotator, group, _round(connection, group), ends)
            groups.append(group)
        (rated,) = connection.execute(
            f"SELECT count(*) FROM assignments WHERE annotator = ? AND done = 1 AND round IN {LAST}", (annotator,)
        ).fetchone()
        return Handed(stage, groups, rated, 0)


def stage_of(connection: sqlite3.Connection, work: Work, config: AnnotateConfig, annotator: str) -> Stage:
    """Where a person is on the way."""
    said = connection.execute(
        "SELECT action FROM decisions WHERE subject = ? AND action IN ('pause', 'resume', 'certify') ORDER BY decision_id", (annotator,)
    ).fetchall()
    actions = [row["action"] for row in said]
    if next((action for action in reversed(actions) if action in ("pause", "resume")), "resume") == "pause":
        return "paused"
    done = _done(connection, annotator)
    if "certify" not in actions:
        if not done.issuperset(work.plan.training):
            return "training"
        for number, form in enumerate(work.plan.exams, 1):
            if not done.issuperset(form):
                return "exam-1" if number == 1 else "exam-2"
            if exam.passed(exam_figures(connection, work, annotator, number), config.quality.exam):
                break
        else:
            if work.plan.exams:
                return "failed"
    return "production" if done.issuperset(work.plan.calibration) else "calibration"


def exam_figures(connection: sqlite3.Connection, work: Work, annotator: str, number: int) -> dict[str, OnGold | None]:
    """Results of an exam form (from 1) by dimension, as far as it was filled in."""
    form = work.plan.exams[number - 1]
    rows = connection.execute(
        "SELECT * FROM (SELECT submission_id, group_id, max(revision) FROM submissions WHERE annotator = ? "
        f"AND group_id IN ({', '.join('?' for _ in form)}) GROUP BY group_id) JOIN scores USING (submission_id)",
        (annotator, *form),
    )
    scores = {(row["group_id"], row["candidate_id"], row["dimension"]): row["score"] for row in rows}
    return exam.compare(scores, work.plan.gold_of(form), work.dimensions, work.levels)


def _listed(stage: Stage, work: Work) -> Sequence[str]:
    """The groups of a stage in which everybody rates the same ones."""
    if stage in ("exam-1", "exam-2"):
        return work.plan.exams[int(stage[-1]) - 1]
    return {"training": work.plan.training, "calibration": work.plan.calibration}.get(stage, ())


def _done(connection: sqlite3.Connection, annotator: str) -> set[str]:
    """What a person has rated, in whatever role the group had then."""
    rows = connection.execute("SELECT group_id FROM assignments WHERE annotator = ? AND done = 1", (annotator,))
    return {row["group_id"] for row in rows}


def _round(connection: sqlite3.Connection, group: str) -> str:
    """Round of a group in production; hidden gold is in no list of the plan's normal work."""
    row = connection.execute("SELECT round FROM groups WHERE group_id = ?", (group,)).fetchone()
    return PRODUCTION if row is None else row["round"]


def _assign(connection: sqlite3.Connection, annotator: str, group: str, stage: str, ends: float) -> None:
    connection.execute(
        "INSERT INTO assignments (annotator, group_id, round, opened_at, lease_ends) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT (annotator, group_id) DO UPDATE SET lease_ends = excluded.lease_ends, "
        "round = CASE done WHEN 0 THEN excluded.round ELSE round END",
        (annotator, group, stage, now(), ends),
    )


def _still_open(connection: sqlite3.Connection, work: Work, annotator: str) -> list[str]:
    """Groups of production that this person has open and nobody else has filled in the meantime, the first opened first."""
    rows = connection.execute(
        "SELECT m.group_id FROM assignments m LEFT JOIN groups g USING (group_id) WHERE m.annotator = :who AND m.done = 0 "
        f"AND (g.group_id IS NULL OR g.wanted > ({_TAKEN})) ORDER BY m.rowid",
        {"who": annotator, "time": time.time()},
    )
    return [row["group_id"] for row in rows if row["group_id"] in work.plan.wanted or row["group_id"] in work.plan.hidden]


def _pick(connection: sqlite3.Connection, work: Work, annotator: str) -> str | None:
    """A group of production that this person does not have yet."""
    return _hidden_gold(connection, work, annotator) or _begun(connection, annotator) or _fresh(connection, annotator)


def _hidden_gold(connection: sqlite3.Connection, work: Work, annotator: str) -> str | None:
    rows = connection.execute("SELECT group_id, round FROM assignments WHERE annotator = ?", (annotator,)).fetchall()
    had = sum(row["round"] in LAST for row in rows)
    if uniform("hidden gold now", work.plan.seed, annotator, had) >= work.plan.hidden_share:
        return None
    mine = {row["group_id"] for row in rows}
    left = [group for group in work.plan.hidden if group not in mine]
    return min(left, key=lambda group: (uniform("hidden gold", work.plan.seed, annotator, group), group), default=None)


def _begun(connection: sqlite3.Connection, annotator: str) -> str | None:
    """A group that others have and that wants one more person."""
    asked = {"who": annotator, "time": time.time()}
    found = connection.execute(
        f"SELECT group_id, place FROM groups g WHERE g.wanted > 1 AND NOT {_MINE} AND ({_TAKEN}) BETWEEN 1 AND g.wanted - 1 "
        "ORDER BY place LIMIT 100",
        asked,
    ).fetchall()
    if not found:
        return None
    partners = connection.execute(
        "SELECT b.annotator AS partner FROM assignments a JOIN assignments b USING (group_id) "
        "WHERE a.annotator = :who AND b.annotator != :who",
        asked,
    )
    shared = Counter(row["partner"] for row in partners)

    def met(group: str) -> int:
        rows = connection.execute("SELECT annotator FROM assignments WHERE group_id = ?", (group,))
        return max((shared[row["annotator"]] for row in rows), default=0)

    return min(found, key=lambda row: (met(row["group_id"]), row["place"]))["group_id"]


def _fresh(connection: sqlite3.Connection, annotator: str) -> str | None:
    """The first group that nobody has."""
    row = connection.execute(
        f"SELECT group_id FROM groups g WHERE NOT {_MINE} AND ({_TAKEN}) = 0 ORDER BY place LIMIT 1",
        {"who": annotator, "time": time.time()},
    ).fetchone()
    return None if row is None else row["group_id"]


def left(connection: sqlite3.Connection) -> tuple[int, int]:
    """Places of the project that are filled, and all of them."""
    filled = connection.execute(
        "SELECT coalesce(sum(min(n, wanted)), 0) FROM (SELECT count(*) AS n, g.wanted AS wanted FROM groups g "
        "JOIN assignments a USING (group_id) WHERE a.done = 1 GROUP BY g.group_id)"
    ).fetchone()[0]
    return filled, connection.execute("SELECT coalesce(sum(wanted), 0) FROM groups").fetchone()[0]


def own_groups(connection: sqlite3.Connection, annotator: str) -> list[str]:
    """Groups that a person has rated and may reopen, the latest first."""
    marks = ", ".join("?" for _ in COUNTED)
    rows = connection.execute(
        f"SELECT group_id FROM submissions WHERE annotator = ? AND round IN ({marks}) GROUP BY group_id ORDER BY min(rowid) DESC",
        (annotator, *COUNTED),
    )
    return [row["group_id"] for row in rows]
