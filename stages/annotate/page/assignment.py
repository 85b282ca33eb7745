"""Assignment of groups to people.

In: the plan, the groups that the person has rated, the groups that others have open. Out: assignments. The stages of a person are training
with feedback, an exam (with a second form after a failure), the calibration groups, production. Without gold there is neither training nor
exam. An export with other settings may give a group another role; a rated group stays rated and is not assigned to the same person again.

In production a group has a slot for each wanted person; a re-annotated group has slots for its raters on this page and one more. A slot is
taken by a submission, or by a lease while somebody has the group open; a group that somebody skipped is free for others. A submission or a
lease of another round than the group's present one (it was opened before the export) takes no slot of that round. Groups that need one more
person come before untouched ones, and among them those of somebody whom no shared groups connect with this person yet, then those of the
partner with whom this person shares the fewest groups. A group of connected people only is left to others while somebody else works
unconnected. So the overlap connects all people and fills evenly. Hidden gold groups are drawn by a hash of the person and of the person's
number of groups. The lead hands a group over by assigning it to somebody (:func:`hand_over`).
"""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple

from stages.annotate.config import AnnotateConfig
from stages.annotate.page import adjudication, exam
from stages.annotate.page.database import COUNTED, Database, clock, now
from stages.annotate.page.packet import Packet
from stages.annotate.ratings.gold import GoldAccuracy
from stages.annotate.ratings.rating_task import ADJUDICATION, BENCHMARK, CALIBRATION, PRODUCTION, REANNOTATION
from stages.engine.ids import uniform

Stage = Literal["training", "exam-1", "exam-2", "calibration", "production", "paused", "failed"]

LAST = tuple(name for name in COUNTED if name != CALIBRATION)
"""Rounds of the stage production."""

OF_EXPERTS = (ADJUDICATION, BENCHMARK)
"""Rounds whose groups only the experts get, where ``annotate.plan.experts`` names any."""

LONGEST_LEASE = 7 * 86_400.0
"""Seconds. One that ends later, as a plan is loaded, is over."""

_TAKEN = (
    "SELECT count(*) FROM assignments a WHERE a.group_id = g.group_id AND a.annotator != :who "
    f"AND (a.done = 1 OR (a.lease_ends > :time AND (g.round = '{PRODUCTION}' OR a.round = g.round)))"
)
_MINE = (
    "(EXISTS (SELECT 1 FROM assignments a WHERE a.group_id = g.group_id AND a.annotator = :who) "
    "OR EXISTS (SELECT 1 FROM elsewhere e WHERE e.group_id = g.group_id AND e.annotator = :who))"
)


_ALLOWED = f"(:expert OR g.round NOT IN {OF_EXPERTS})"


class Assigned(NamedTuple):
    """stage: of the person; groups: the one to rate now and the next ones; done, total: groups of this stage (total 0: unlimited)."""

    stage: Stage
    groups: list[str]
    done: int
    total: int


def load_plan(database: Database, packet: Packet) -> None:
    """Write the groups of the plan into the database; slots that the lead added stay, as long as the group stays in its round. Loading the
    same plan again changes nothing."""
    with database.write() as connection:
        more = {(row["group_id"], row["round"]): row["wanted"] for row in connection.execute("SELECT group_id, wanted, round FROM groups")}
        # a lease of a server whose clock was ahead
        connection.execute("UPDATE assignments SET lease_ends = 1 WHERE done = 0 AND lease_ends > ?", (clock() + LONGEST_LEASE,))
        adjudication.update_done(connection, packet, packet.plan.rounds)
        done = defaultdict[str, list[sqlite3.Row]](list)
        for row in connection.execute("SELECT group_id, annotator, round FROM assignments WHERE done = 1"):
            done[row["group_id"]].append(row)
        connection.execute("DELETE FROM groups")
        connection.execute("DELETE FROM elsewhere")
        connection.executemany(
            "INSERT INTO elsewhere VALUES (?, ?)", [(g, name) for g, names in packet.plan.rated.items() for name in names]
        )
        rows = []
        for place, (group, wanted) in enumerate(packet.plan.wanted.items()):
            listed = packet.plan.rated.get(group, ())
            round = packet.plan.rounds.get(group, REANNOTATION if listed else PRODUCTION)
            before = listed if round == REANNOTATION else ()
            people = wanted
            if round != PRODUCTION:  # its people come on top of those who rated the group in another round, or were known at the export
                people += sum(row["round"] != round or row["annotator"] in before for row in done[group])
            rows.append((group, place, max(people, more.get((group, round), 0)), round))
        connection.executemany("INSERT INTO groups VALUES (?, ?, ?, ?)", rows)


def assign(database: Database, packet: Packet, config: AnnotateConfig, annotator: str, *, count: int) -> Assigned:
    """The current groups of a person, at most ``count``; starts or renews their leases."""
    with database.write() as connection:
        stage = stage_of(connection, packet, config, annotator)
        ends = clock() + 60 * config.serve.lease_minutes
        if stage in ("paused", "failed"):
            return Assigned(stage, [], 0, 0)
        listed = _listed(stage, packet)
        if listed:
            done = _done(connection, annotator)
            groups = [group for group in listed if group not in done][:count]
            for group in groups:
                _lease(connection, annotator, group, stage, ends)
            return Assigned(stage, groups, sum(group in done for group in listed), len(listed))
        experts = config.plan.experts
        expert = not experts or annotator in experts
        groups = _still_open(connection, packet, annotator)[:count]
        for group in groups:
            _lease(connection, annotator, group, _round(connection, group), ends)
        while len(groups) < count and (group := _pick(connection, packet, annotator, expert=expert)) is not None:
            _lease(connection, annotator, group, _round(connection, group), ends)
            groups.append(group)
        (rated,) = connection.execute(
            f"SELECT count(*) FROM assignments WHERE annotator = ? AND done = 1 AND round IN {LAST}", (annotator,)
        ).fetchone()
        return Assigned(stage, groups, rated, 0)


def stage_of(connection: sqlite3.Connection, packet: Packet, config: AnnotateConfig, annotator: str) -> Stage:
    """The stage of a person."""
    decisions = connection.execute(
        "SELECT action FROM decisions WHERE subject = ? AND action IN ('pause', 'resume', 'certify') ORDER BY decision_id", (annotator,)
    ).fetchall()
    actions = [row["action"] for row in decisions]
    if next((action for action in reversed(actions) if action in ("pause", "resume")), "resume") == "pause":
        return "paused"
    done = _done(connection, annotator)
    if "certify" not in actions:
        if not done.issuperset(packet.plan.training):
            return "training"
        for number, form in enumerate(packet.plan.exams, 1):
            if not done.issuperset(form):
                return "exam-1" if number == 1 else "exam-2"
            if exam.passed(exam_results(connection, packet, annotator, number), config.quality.exam):
                break
        else:
            if packet.plan.exams:
                return "failed"
    return "production" if done.issuperset(packet.plan.calibration) else "calibration"


def exam_results(connection: sqlite3.Connection, packet: Packet, annotator: str, number: int) -> dict[str, GoldAccuracy | None]:
    """Results of an exam form (from 1) by dimension; groups that were not rated are left out."""
    form = packet.plan.exams[number - 1]
    rows = connection.execute(
        "SELECT * FROM (SELECT submission_id, group_id, max(revision) FROM submissions WHERE annotator = ? "
        f"AND group_id IN ({', '.join('?' for _ in form)}) GROUP BY group_id) JOIN scores USING (submission_id)",
        (annotator, *form),
    )
    scores = {(row["group_id"], row["candidate_id"], row["dimension"]): row["score"] for row in rows}
    return exam.compare(scores, packet.plan.gold_of(form), packet.dimensions, packet.levels)


def _listed(stage: Stage, packet: Packet) -> Sequence[str]:
    """Groups of a stage in which everybody rates the same groups; empty for production."""
    if stage in ("exam-1", "exam-2"):
        return packet.plan.exams[int(stage[-1]) - 1]
    return {"training": packet.plan.training, "calibration": packet.plan.calibration}.get(stage, ())


def _done(connection: sqlite3.Connection, annotator: str) -> set[str]:
    """Groups that a person has rated in any role."""
    rows = connection.execute("SELECT group_id FROM assignments WHERE annotator = ? AND done = 1", (annotator,))
    return {row["group_id"] for row in rows}


def _round(connection: sqlite3.Connection, group: str) -> str:
    """Round of a group in production. Hidden gold is not in the table ``groups``."""
    row = connection.execute("SELECT round FROM groups WHERE group_id = ?", (group,)).fetchone()
    return PRODUCTION if row is None else row["round"]


def _lease(connection: sqlite3.Connection, annotator: str, group: str, stage: str, ends: float) -> None:
    """Reserve a group. A group that is open or done keeps its round: who has it open did not get it because of others' ratings."""
    connection.execute(
        "INSERT INTO assignments (annotator, group_id, round, opened_at, lease_ends) VALUES (:who, :group, :stage, :opened, :ends) "
        "ON CONFLICT (annotator, group_id) DO UPDATE SET lease_ends = excluded.lease_ends, round = CASE WHEN done = 1 OR "
        f"(round IN {LAST} AND excluded.round IN {LAST} AND lease_ends > :time) THEN round ELSE excluded.round END",
        {"who": annotator, "group": group, "stage": stage, "opened": now(), "ends": ends, "time": clock()},
    )


def _still_open(connection: sqlite3.Connection, packet: Packet, annotator: str) -> list[str]:
    """Production groups that this person has open and others have not completed since, in the order of opening."""
    rows = connection.execute(
        "SELECT m.group_id FROM assignments m LEFT JOIN groups g USING (group_id) WHERE m.annotator = :who AND m.done = 0 "
        "AND m.lease_ends > 0 "
        f"AND (g.group_id IS NULL OR g.wanted > ({_TAKEN}) OR (m.lease_ends > :time AND g.round != :production AND m.round != g.round)) "
        "ORDER BY m.rowid",
        {"who": annotator, "time": clock(), "production": PRODUCTION},
    )
    return [row["group_id"] for row in rows if row["group_id"] in packet.plan.wanted or row["group_id"] in packet.plan.hidden]


def _pick(connection: sqlite3.Connection, packet: Packet, annotator: str, *, expert: bool) -> str | None:
    """A new production group for this person."""
    if (gold := _hidden_gold(connection, packet, annotator)) is not None:
        return gold
    begun, left = _begun(connection, annotator, expert)
    if begun is None or left:
        return _fresh(connection, annotator, expert) or begun
    return begun


def _hidden_gold(connection: sqlite3.Connection, packet: Packet, annotator: str) -> str | None:
    rows = connection.execute("SELECT group_id, round FROM assignments WHERE annotator = ?", (annotator,)).fetchall()
    had = sum(row["round"] in LAST for row in rows)
    if uniform("hidden gold now", packet.plan.seed, annotator, had) >= packet.plan.hidden_share:
        return None
    mine = {row["group_id"] for row in rows}
    left = [group for group in packet.plan.hidden if group not in mine]
    return min(left, key=lambda group: (uniform("hidden gold", packet.plan.seed, annotator, group), group), default=None)


def _begun(connection: sqlite3.Connection, annotator: str, expert: bool) -> tuple[str | None, bool]:
    """A group that others have and that needs one more person, and whether somebody else should get it, as it connects nobody."""
    asked = {"who": annotator, "time": clock(), "expert": expert, "round": PRODUCTION}
    found = connection.execute(
        f"SELECT group_id, place, round FROM groups g WHERE g.wanted > 1 AND {_ALLOWED} AND NOT {_MINE} "
        f"AND ({_TAKEN}) BETWEEN 1 AND g.wanted - 1 ORDER BY place LIMIT 100",
        asked,
    ).fetchall()
    if not found:
        return None, False
    working = {
        row["annotator"]
        for row in connection.execute("SELECT annotator FROM assignments WHERE done = 0 AND lease_ends > :time AND round = :round", asked)
    }
    query = "SELECT annotator FROM assignments WHERE group_id = :group AND (done = 1 OR lease_ends > :time)"
    raters = {row["group_id"]: {of["annotator"] for of in connection.execute(query, asked | {"group": row["group_id"]})} for row in found}
    shared = _partners(connection, annotator)
    team = _connected(connection, annotator, working.union(*raters.values()))

    def order(row: sqlite3.Row) -> tuple[bool, int, int]:
        names = raters[row["group_id"]]
        return row["round"] == PRODUCTION and names <= team, max(shared[name] for name in names), row["place"]

    best = min(found, key=order)
    return best["group_id"], order(best)[0] and not working <= team


def _partners(connection: sqlite3.Connection, annotator: str) -> Counter[str]:
    """Number of groups that a person shares with each other one: rated or open, without training and exams."""
    rows = connection.execute(
        f"SELECT b.annotator AS partner FROM assignments a JOIN assignments b USING (group_id) WHERE a.annotator = :who "
        f"AND b.annotator != :who AND a.round IN {COUNTED} AND b.round IN {COUNTED} "
        "AND (a.done = 1 OR a.lease_ends > :time) AND (b.done = 1 OR b.lease_ends > :time)",
        {"who": annotator, "time": clock()},
    )
    return Counter(row["partner"] for row in rows)


def _connected(connection: sqlite3.Connection, annotator: str, wanted: Collection[str]) -> set[str]:
    """This person and those whom shared groups connect with this person, directly or through others; complete for the ``wanted`` ones."""
    team, left = {annotator}, [annotator]
    while left and not team.issuperset(wanted):
        new = _partners(connection, left.pop()).keys() - team
        team |= new
        left += sorted(new)
    return team


def _fresh(connection: sqlite3.Connection, annotator: str, expert: bool) -> str | None:
    """The first untouched group."""
    row = connection.execute(
        f"SELECT group_id FROM groups g WHERE {_ALLOWED} AND NOT {_MINE} AND ({_TAKEN}) = 0 ORDER BY place LIMIT 1",
        {"who": annotator, "time": clock(), "expert": expert},
    ).fetchone()
    return None if row is None else row["group_id"]


def keep_slot(connection: sqlite3.Connection, annotator: str, group: str) -> None:
    """Before a first submission: add a slot where the group has gone into another round since this person opened it."""
    connection.execute(
        "UPDATE groups SET wanted = wanted + 1 WHERE group_id = :group AND round != :production AND EXISTS (SELECT 1 FROM assignments a "
        "WHERE a.group_id = :group AND a.annotator = :who AND a.done = 0 AND a.round != groups.round)",
        {"group": group, "who": annotator, "production": PRODUCTION},
    )


def hand_over(connection: sqlite3.Connection, annotator: str, group: str, ends: float) -> None:
    """Assign a group of the plan to a person, as a further person where all its slots are taken; also one that this person skipped."""
    asked = {"who": annotator, "group": group, "time": clock()}
    connection.execute(
        f"UPDATE groups AS g SET wanted = max(wanted, 1 + ({_TAKEN})) WHERE group_id = :group",
        asked,
    )
    connection.execute("UPDATE skips SET open = 0 WHERE group_id = :group", asked)
    _lease(connection, annotator, group, _round(connection, group), ends)


def progress(connection: sqlite3.Connection) -> tuple[int, int]:
    """Number of filled slots of the project, and of all slots."""
    filled = connection.execute(
        "SELECT coalesce(sum(min(n, wanted)), 0) FROM (SELECT count(*) AS n, g.wanted AS wanted FROM groups g "
        "JOIN assignments a USING (group_id) WHERE a.done = 1 GROUP BY g.group_id)"
    ).fetchone()[0]
    return filled, connection.execute("SELECT coalesce(sum(wanted), 0) FROM groups").fetchone()[0]


def own_groups(connection: sqlite3.Connection, annotator: str) -> list[str]:
    """Groups that a person has rated and may open again, the latest first."""
    marks = ", ".join("?" for _ in COUNTED)
    rows = connection.execute(
        f"SELECT group_id FROM submissions WHERE annotator = ? AND round IN ({marks}) GROUP BY group_id ORDER BY min(rowid) DESC",
        (annotator, *COUNTED),
    )
    return [row["group_id"] for row in rows]
