"""Everything that counts, group by group, as arrays: what the lead's figures are computed from."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

import numpy as np

from stages.annotation_server.work import Work


@dataclass(frozen=True)
class Rated:
    """One group by one person. scores: [candidate, dimension], candidates as in the packet; positions: places on the page [candidate]."""

    group: str
    annotator: str
    scores: np.ndarray
    positions: np.ndarray
    seconds: float
    at: str


def read(connection: sqlite3.Connection, work: Work) -> list[Rated]:
    """Everything that counts, in the order of submission."""
    column = {dimension: i for i, dimension in enumerate(work.dimensions)}
    place: dict[str, dict[str, int]] = {g: {c: i for i, c in enumerate(of.candidates)} for g, of in work.groups.items()}
    found: dict[str, Rated] = {}
    rows = connection.execute(
        "SELECT l.submission_id, annotator, group_id, seconds, submitted_at, candidate_id, dimension, score, position "
        "FROM latest l JOIN scores USING (submission_id) WHERE l.flag IS NULL ORDER BY submitted_at, l.submission_id"
    )
    for name, annotator, group, seconds, at, candidate, dimension, score, position in rows:
        if group not in place:
            continue
        entry = found.get(name)
        if entry is None:
            count = len(place[group])
            entry = Rated(group, annotator, np.zeros((count, len(column)), np.int8), np.zeros(count, np.int16), seconds, at)
            found[name] = entry
        entry.scores[place[group][candidate], column[dimension]] = score
        entry.positions[place[group][candidate]] = position
    return list(found.values())
