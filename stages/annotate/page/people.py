"""Statistics of each person on the lead's page.

In: all ratings of the page and their judgement (:mod:`stages.annotate.page.judged`). Out: plain values. Status, remarks, severity, kappa,
drift and accuracy on gold are those of the judgement, as in `pipeline annotate qc`. With fewer than ``annotate.quality.least_groups``
shared groups the page greys them: a person's kappa then varies by at least 0.07 by chance.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stages.annotate.config import AnnotateConfig
from stages.annotate.page import assignment
from stages.annotate.page.judged import Judged
from stages.annotate.page.packet import Packet
from stages.annotate.page.rated import Rated
from stages.annotate.page.roster import Person
from stages.annotate.quality.screening import Screening
from stages.annotate.ratings.gold import GoldAccuracy


def statistics(
    connection: sqlite3.Connection, packet: Packet, roster: Sequence[Person], config: AnnotateConfig, judged: Judged
) -> list[dict[str, Any]]:
    """One entry per annotator of the roster."""
    own: defaultdict[str, list[Rated]] = defaultdict(list)
    for entry in judged.groups:
        own[entry.annotator].append(entry)
    found = judged.judgement.screening if judged.judgement else Screening({}, {})
    return [_person(connection, packet, config, person, own[person.pseudonym], found) for person in roster if person.role == "annotator"]


def _person(
    connection: sqlite3.Connection, packet: Packet, config: AnnotateConfig, person: Person, own: Sequence[Rated], found: Screening
) -> dict[str, Any]:
    name = person.pseudonym
    of = {profile.dimension: profile for profile in found.profiles.get(name, ())}
    status = found.statuses.get(name)
    hidden = {dimension: found.gold.get((name, dimension)) for dimension in packet.dimensions}
    exams = {f"exam-{n}": assignment.exam_results(connection, packet, name, n) for n in range(1, 1 + len(packet.plan.exams))}
    shared = max((profile.compared_groups for profile in of.values()), default=0)

    def each(value: str) -> dict[str, float | None]:
        return {d: getattr(of[d], value).to_json()["value"] if d in of else None for d in packet.dimensions}

    return {
        "annotator": name,
        "revoked": person.revoked,
        "stage": assignment.stage_of(connection, packet, config, name),
        "status": status.status if status else "",
        "groups": len(own),
        "seconds": round(float(np.median([entry.seconds for entry in own])), 1) if own else None,
        "shared": shared,
        "enough_shared": shared >= config.quality.least_groups,
        "all_equal": round(sum(entry.scores.min() == entry.scores.max() for entry in own) / len(own), 3) if own else None,
        "severity": each("severity"),
        "drift": {d: of[d].drift if d in of else None for d in packet.dimensions},
        "kappa": each("kappa"),
        "position_slope": _slope(own),
        "hidden_gold": _plain(hidden),
        "exams": {exam: _plain(by_dimension) for exam, by_dimension in exams.items() if any(by_dimension.values())},
        "remarks": list(status.reasons) if status else [],
    }


def _plain(by_dimension: Mapping[str, GoldAccuracy | None]) -> dict[str, dict[str, Any] | None]:
    return {dimension: None if result is None else vars(result) for dimension, result in by_dimension.items()}


def _slope(own: Sequence[Rated]) -> float | None:
    """Change of the score per position on the page. The order is random, so it should be near 0."""
    if not own:
        return None
    # Least squares slope within groups: positions and scores [edits of all groups] minus the means of their group.
    sizes = np.array([len(entry.positions) for entry in own])
    begins = np.cumsum(sizes) - sizes

    def within_group(values: np.ndarray) -> np.ndarray:
        return values - np.repeat(np.add.reduceat(values, begins) / sizes, sizes)

    place = within_group(np.concatenate([entry.positions for entry in own]).astype(np.float64))
    score = within_group(np.concatenate([entry.scores for entry in own]).mean(1))
    spread = float((place**2).sum())
    return round(float((place * score).sum()) / spread, 4) if spread else None
