"""The figures of each person on the lead's page, and what to look at.

In: what everybody rated. Out: plain values. People are compared with those who rated the same groups: ``severity`` is the mean difference
(positive: lenient), ``kappa`` the agreement with partners, ``drift`` the severity in the newest 25 shared groups minus
that in the first 50. Below 15 shared groups they say nothing (one person's kappa then varies by 0.07 or more by chance), and the page
greys them.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

import numpy as np

from stages.annotate_config import AnnotateConfig
from stages.annotation_server import exam, handing_out
from stages.annotation_server.rated import Rated
from stages.annotation_server.roster import Person
from stages.annotation_server.work import Work
from stages.ratings import agreement
from stages.ratings.quality_config import QualityConfig

EARLY, LATE = 50, 25


def figures(
    connection: sqlite3.Connection,
    work: Work,
    roster: Sequence[Person],
    config: AnnotateConfig,
    groups: Sequence[Rated],
    shared: Mapping[str, list[Rated]],
) -> list[dict[str, Any]]:
    """One entry per annotator of the roster. shared: the groups of several people."""
    own: defaultdict[str, list[Rated]] = defaultdict(list)
    for entry in groups:
        own[entry.annotator].append(entry)
    together: defaultdict[str, list[tuple[str, np.ndarray, np.ndarray]]] = defaultdict(list)
    for entries in shared.values():
        for a, b in permutations(entries, 2):
            together[a.annotator].append((a.at, a.scores, b.scores))
    middle = float(np.median([entry.seconds for entry in groups])) if groups else 0.0
    return [
        _person(connection, work, config, person, own[person.pseudonym], sorted(together[person.pseudonym], key=lambda t: t[0]), middle)
        for person in roster
        if person.role == "annotator"
    ]


def _person(
    connection: sqlite3.Connection,
    work: Work,
    config: AnnotateConfig,
    person: Person,
    own: Sequence[Rated],
    together: Sequence[tuple[str, np.ndarray, np.ndarray]],
    middle: float,
) -> dict[str, Any]:
    differences = np.array([(mine.astype(float) - other).mean(0) for _, mine, other in together]).reshape(-1, len(work.dimensions))
    seconds = float(np.median([entry.seconds for entry in own])) if own else None
    hidden = {
        (entry.group, candidate, dimension): int(entry.scores[i, d])
        for entry in own
        if entry.group in work.plan.hidden
        for i, candidate in enumerate(work.groups[entry.group].candidates)
        for d, dimension in enumerate(work.dimensions)
    }
    exams = {
        f"exam-{number}": handing_out.exam_figures(connection, work, person.pseudonym, number)
        for number in range(1, 1 + len(work.plan.exams))
        if connection.execute(
            "SELECT 1 FROM submissions WHERE annotator = ? AND round = ?", (person.pseudonym, f"exam-{number}")
        ).fetchone()
    }
    result: dict[str, Any] = {
        "annotator": person.pseudonym,
        "revoked": person.revoked,
        "stage": handing_out.stage_of(connection, work, config, person.pseudonym),
        "groups": len(own),
        "seconds": None if seconds is None else round(seconds, 1),
        "shared": len(together),
        "enough_shared": len(together) >= config.quality.least_groups,
        "all_equal": round(sum(len(np.unique(entry.scores)) == 1 for entry in own) / len(own), 3) if own else None,
        "severity": {d: round(float(differences[:, i].mean()), 3) if len(differences) else None for i, d in enumerate(work.dimensions)},
        "drift": {
            d: round(float(differences[-LATE:, i].mean() - differences[:EARLY, i].mean()), 3) if len(differences) >= EARLY + LATE else None
            for i, d in enumerate(work.dimensions)
        },
        "kappa": {d: _kappa([(m[:, i], o[:, i]) for _, m, o in together], work.levels) for i, d in enumerate(work.dimensions)},
        "position_slope": _slope(own),
        "hidden_gold": exam.compare(hidden, work.plan.gold, {key[0] for key in hidden}, work.dimensions, work.levels),
        "exams": exams,
    }
    return result | {"remarks": _remarks(result, middle, config.quality)}


def _kappa(pairs: Sequence[tuple[np.ndarray, np.ndarray]], levels: Sequence[int]) -> float | None:
    if not pairs:
        return None
    mine, other = (np.concatenate(side) - levels[0] for side in zip(*pairs, strict=True))
    count = len(levels)
    table = np.bincount(mine.astype(int) * count + other.astype(int), minlength=count * count).reshape(1, count, count).astype(float)
    value = float(agreement.weighted_kappa(table, np.subtract.outer(np.arange(count), np.arange(count)) ** 2)[0])
    return None if np.isnan(value) else round(value, 3)


def _slope(own: Sequence[Rated]) -> float | None:
    """Change of the score per place on the page; the order is random, so it should be near 0."""
    if not own:
        return None
    place = np.concatenate([entry.positions - entry.positions.mean() for entry in own])
    score = np.concatenate([entry.scores.mean(1) - entry.scores.mean() for entry in own])
    spread = float((place**2).sum())
    return round(float((place * score).sum()) / spread, 4) if spread else None


def _remarks(person: Mapping[str, Any], middle: float, rules: QualityConfig) -> list[str]:
    """What the lead should look at, in words; nothing about agreement with few shared groups."""
    found = []
    attention = rules.attention
    if person["seconds"] is not None and middle and person["seconds"] < attention.pace * middle:
        found.append(f"takes less than {attention.pace:.0%} of the usual time")
    if person["groups"] >= rules.least_groups and person["all_equal"] > 0.2:
        found.append("often gives every edit the same score")
    if person["enough_shared"]:
        for d, kappa in person["kappa"].items():
            words = d.replace("_", " ")
            if kappa is None or kappa < attention.kappa:
                found.append(f"agrees little with the others ({words})")
            if abs(person["severity"][d]) > attention.severity:
                found.append(f"{'more lenient' if person['severity'][d] > 0 else 'more severe'} than the others ({words})")
            if person["drift"][d] is not None and abs(person["drift"][d]) > attention.drift:
                found.append(f"has changed since the beginning ({words})")
    for d, figures in person["hidden_gold"].items():
        if figures["n"] >= 7 and figures["within_one"] < rules.remove.gold_within_one:
            found.append(f"is often far from gold ({d.replace('_', ' ')})")
    return found
