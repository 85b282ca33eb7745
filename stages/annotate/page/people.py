"""Statistics of each person on the lead's page, with remarks.

In: all ratings of the page. Out: plain values. Severity, kappa and drift are those of :mod:`stages.annotate.quality.profiles`, accuracy on
gold is that of :mod:`stages.annotate.ratings.gold`, and the remarks follow the rules of :mod:`stages.annotate.quality.screening`, as in
`pipeline annotate qc`. With fewer than ``annotate.quality.least_groups`` shared groups the page greys them: a person's kappa then varies
by at least 0.07 by chance.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stages.annotate.config import AnnotateConfig, QualityConfig
from stages.annotate.page import assignment, rated
from stages.annotate.page.packet import Packet
from stages.annotate.page.rated import Rated
from stages.annotate.page.roster import Person
from stages.annotate.quality.profiles import Profile, profiles
from stages.annotate.quality.screening import attention, disagreement, gold_failures
from stages.annotate.ratings.gold import GoldAccuracy, gold_accuracy

OFTEN_EQUAL = 0.2
"""Share of groups with one score for everything above which a remark is made."""


def statistics(
    connection: sqlite3.Connection, packet: Packet, roster: Sequence[Person], config: AnnotateConfig, groups: Sequence[Rated]
) -> list[dict[str, Any]]:
    """One entry per annotator of the roster."""
    own: defaultdict[str, list[Rated]] = defaultdict(list)
    for entry in groups:
        own[entry.annotator].append(entry)
    ratings, levels, rules = rated.table(groups, packet), [float(level) for level in packet.levels], config.quality
    of: defaultdict[str, dict[str, Profile]] = defaultdict(dict)
    if groups:
        for profile in profiles(ratings, levels, window=rules.window, least=rules.least_groups, seed=packet.plan.seed):
            of[profile.annotator][profile.dimension] = profile
    gold = gold_accuracy(ratings, packet.plan.gold_of(packet.plan.gold), (), levels)
    return [
        _person(connection, packet, config, person, own[person.pseudonym], of[person.pseudonym], gold)
        for person in roster
        if person.role == "annotator"
    ]


def _person(
    connection: sqlite3.Connection,
    packet: Packet,
    config: AnnotateConfig,
    person: Person,
    own: Sequence[Rated],
    of: Mapping[str, Profile],
    gold: Mapping[tuple[str, str], GoldAccuracy],
) -> dict[str, Any]:
    name = person.pseudonym
    hidden = {dimension: gold.get((name, dimension)) for dimension in packet.dimensions}
    exams = {f"exam-{n}": assignment.exam_results(connection, packet, name, n) for n in range(1, 1 + len(packet.plan.exams))}
    shared = max((profile.compared_groups for profile in of.values()), default=0)

    def each(value: str) -> dict[str, float | None]:
        return {d: getattr(of[d], value).to_json()["value"] if d in of else None for d in packet.dimensions}

    result: dict[str, Any] = {
        "annotator": name,
        "revoked": person.revoked,
        "stage": assignment.stage_of(connection, packet, config, name),
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
    }
    return result | {"remarks": _remarks(result, list(of.values()), gold, config.quality)}


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


def _remarks(
    person: Mapping[str, Any], of: Sequence[Profile], gold: Mapping[tuple[str, str], GoldAccuracy], rules: QualityConfig
) -> list[str]:
    """Remarks for the lead; none about agreement with few shared groups."""
    name = person["annotator"]
    often = person["groups"] >= rules.least_groups and person["all_equal"] > OFTEN_EQUAL
    return [
        *disagreement(of, rules),
        *gold_failures({key: result for key, result in gold.items() if key[0] == name}, {}, rules).get(name, ()),
        *(reason for profile in of for reason in attention(profile, rules)),
        *(["often gives every edit the same score"] if often else []),
    ]
