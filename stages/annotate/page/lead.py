"""Statistics of the lead's page: progress, agreement, confusion, and the groups that need a decision (people: :mod:`.people`).

In: the database and the packet. Out: plain values. Both queues are those of quality control (:mod:`stages.annotate.page.judged`).
"""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import Any

import numpy as np

from stages.annotate.config import AnnotateConfig
from stages.annotate.page import assignment, people, phases, waiting
from stages.annotate.page.database import clock
from stages.annotate.page.judged import Judged
from stages.annotate.page.packet import Packet
from stages.annotate.page.rated import Rated
from stages.annotate.page.roster import Person
from stages.annotate.quality import figures as quality
from stages.annotate.quality.judgement import SHOWN
from stages.annotate.ratings.shown_levels import nearest, note, shown_levels

MOST_QUEUED = 200

HOURS = "SELECT annotator, day, seconds, groups, revisions, skips FROM hours ORDER BY day DESC, annotator"
"""Active time by person and day."""

EXPIRED = "SELECT count(*) FROM assignments WHERE done = 0 AND lease_ends BETWEEN 1 AND ?"
"""Groups that were opened and neither submitted nor skipped."""


def summary(
    connection: sqlite3.Connection, packet: Packet, roster: Sequence[Person], config: AnnotateConfig, judged: Judged
) -> dict[str, Any]:
    """All data of the page."""
    groups, quality_of_all = judged.groups, _quality(judged)
    by_group: defaultdict[str, list[Rated]] = defaultdict(list)
    for entry in groups:
        by_group[entry.group].append(entry)
    shared = {group: entries for group, entries in by_group.items() if len(entries) > 1}
    persons = people.statistics(connection, packet, roster, config, judged)
    connected = quality.connected([entry.annotator for entry in entries] for entries in by_group.values())
    return {
        "progress": _progress(connection, packet, groups)
        | {"shared_groups": len(shared), "connected": len(connected) <= 1, "sets": _sets(connected)},
        "people": persons,
        "waiting": [*waiting.unknown_experts(roster, config.plan), *waiting.groups_for_nobody(connection, persons, config.plan)],
        "quality": quality_of_all,
        "phases": phases.phases(connection, packet, quality_of_all["targets"]),
        "hours": [dict(row) for row in connection.execute(HOURS)],
        "skipped": [
            dict(row) for row in connection.execute("SELECT annotator, group_id, skipped_at, reason FROM skips WHERE open ORDER BY rowid")
        ],
        "annotators": [person.pseudonym for person in roster if person.role == "annotator" and not person.revoked],
        "confusion": _confusion(packet, shared),
        "queued_groups": len(judged.queued),
        "queued": [{"group_id": row.group_id, "message": row.message, "raters": row.raters} for row in judged.queued[:MOST_QUEUED]],
        "disputed": Counter(cell.group_id for cell in judged.disputed),
        "flagged": [dict(row) for row in connection.execute("SELECT group_id, annotator, flag, comment, submitted_at FROM unrateable")],
        "comments": [
            dict(row)
            for row in connection.execute(
                "SELECT group_id, annotator, comment, submitted_at FROM latest WHERE comment != '' AND flag IS NULL "
                "ORDER BY submitted_at DESC LIMIT 50"
            )
        ],
        "decisions": [dict(row) for row in connection.execute("SELECT * FROM decisions ORDER BY decision_id DESC LIMIT 100")],
        "shares": _shares(packet, groups),
        "shares_note": note(packet.levels),
    }


def _quality(judged: Judged) -> dict[str, Any]:
    """Targets, and agreement by round, of all ratings and of the accepted ones; ``shown``: the statistics to show first."""
    found = judged.judgement
    by_name = {"targets": found.targets, "accepted": found.rounds, "all": found.rounds_of_all} if found else {}
    return {"problem": judged.problem, "shown": SHOWN, "targets": [], "accepted": {}, "all": {}} | by_name


def all_submissions(connection: sqlite3.Connection, packet: Packet, group_id: str) -> dict[str, Any]:
    """A group with everybody's latest submission, for the lead only."""
    group = packet.groups[group_id]
    submissions: dict[str, dict[str, Any]] = {}
    rows = connection.execute(
        "SELECT s.annotator, s.flag, s.comment, s.round, c.candidate_id, c.dimension, c.score "
        "FROM submissions s LEFT JOIN scores c USING (submission_id) WHERE s.group_id = ? AND s.revision = "
        "(SELECT max(revision) FROM submissions t WHERE t.annotator = s.annotator AND t.group_id = s.group_id) "
        "ORDER BY s.annotator",
        (group_id,),
    )
    for row in rows:
        entry = submissions.setdefault(
            row["annotator"],
            {"annotator": row["annotator"], "round": row["round"], "flag": row["flag"], "comment": row["comment"], "scores": {}},
        )
        if row["candidate_id"]:
            entry["scores"].setdefault(row["candidate_id"], {})[row["dimension"]] = row["score"]
    gold = packet.plan.gold.get(group_id, {})
    return {
        "group_id": group_id,
        "instruction": group.instruction,
        "source": f"/image/{group.source}",
        "candidates": [{"id": c, "image": f"/image/{name}"} for c, name in group.candidates.items()],
        "said": list(submissions.values()),
        "gold": {c: {d: cell.accepted for d, cell in cells.items()} for c, cells in gold.items()},
    }


def _progress(connection: sqlite3.Connection, packet: Packet, groups: Sequence[Rated]) -> dict[str, Any]:
    filled, places = assignment.progress(connection)
    week = datetime.now(UTC) - timedelta(days=7)
    recent = [entry for entry in groups if datetime.fromisoformat(entry.at) >= week]
    days = (datetime.now(UTC) - datetime.fromisoformat(recent[0].at)).total_seconds() / 86_400 if recent else 0.0
    rate = len(recent) / max(days, 1.0)
    left = places - filled
    return {
        "groups": len(packet.plan.wanted) + len(packet.plan.calibration),
        "places": places,
        "filled": filled,
        "ratings": sum(entry.scores.size for entry in groups),
        "groups_per_day": round(rate, 1),
        "days_left": round(left / rate, 1) if rate else None,
        "expired": connection.execute(EXPIRED, (clock(),)).fetchone()[0],
    }


def _sets(connected: Sequence[Sequence[str]]) -> str:
    """What to do about sets of raters that no shared group connects; empty for one set."""
    if len(connected) <= 1:
        return ""
    return (
        f"No group was rated in two of these sets, so severities cannot be compared between them: {' | '.join(map(', '.join, connected))}. "
        "If they stay apart, `pipeline annotate export annotate.plan.calibration=3` lets everybody rate three groups, which connects them."
    )


def _confusion(packet: Packet, shared: Mapping[str, list[Rated]]) -> dict[str, list[list[int]]]:
    """Per dimension, counts of one person's score (row) against another's (column); each pair counts both ways: [levels, levels]."""
    levels = shown_levels(packet.levels)
    count = len(levels)
    tables = np.zeros((len(packet.dimensions), count, count), dtype=np.int64)
    for entries in shared.values():
        for a, b in permutations(entries, 2):
            own, other = nearest(a.scores, levels), nearest(b.scores, levels)  # [candidates, dimensions]
            np.add.at(tables, (np.arange(len(packet.dimensions)), own, other), 1)
    return dict(zip(packet.dimensions, tables.tolist(), strict=True))


def _shares(packet: Packet, groups: Sequence[Rated]) -> dict[str, dict[str, float]]:
    levels = shown_levels(packet.levels)
    scores = nearest(np.concatenate([entry.scores for entry in groups]) if groups else np.zeros((0, len(packet.dimensions))), levels)
    return {
        dimension: {f"{level:g}": round(float((scores[:, d] == i).mean()), 4) if len(scores) else 0.0 for i, level in enumerate(levels)}
        for d, dimension in enumerate(packet.dimensions)
    }
