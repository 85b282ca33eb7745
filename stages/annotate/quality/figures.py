"""Figures of quality control: agreement of every round, how the overlap connects the raters, and whether the targets are met.

In: accepted ratings, the scale, the targets. Out: plain values for ``quality.json``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from stages.annotate.agreement import ac2 as gwet
from stages.annotate.agreement import icc as intraclass
from stages.annotate.agreement.alpha import OVERALL, agreement, directions, panels, rater_tables
from stages.annotate.quality.config import Target
from stages.annotate.ratings.rounds import ADJUDICATION, ROUNDS


def by_round(ratings: pa.Table, levels: Sequence[float], *, seed: int) -> dict[str, dict[str, Any]]:
    """Per round and dimension all statistics of agreement, and under ``confusion`` how often two raters gave which levels.

    Adjudications, given in knowledge of the others' scores, are no evidence of agreement.
    """
    rounds = sorted(set(ratings["round"].to_pylist()) - {ADJUDICATION}, key=ROUNDS.index)
    return {name: of_round(ratings.filter(pc.equal(ratings["round"], name)), levels, seed=seed) for name in rounds}


def of_round(ratings: pa.Table, levels: Sequence[float], *, seed: int) -> dict[str, Any]:
    """Statistics of the ratings of one round by dimension; ``overall``, the sum of the dimensions, has those on pair directions only."""
    parts = panels(ratings)
    overall = parts.pop(OVERALL)
    result: dict[str, Any] = {}
    for name, panel in parts.items():
        _, pairs, _ = rater_tables(panel, levels)
        result[name] = (
            agreement(panel, levels, seed=seed)
            | gwet.coefficients(panel, levels, seed=seed)
            | intraclass.correlations(panel, seed=seed)
            | {"confusion": pairs.sum(0).astype(int).tolist()}
        )
    return result | {OVERALL: directions(overall, seed=seed)}


def overlap(raters_of: Mapping[str, Collection[str]]) -> dict[str, Any]:
    """How many groups more than one person rated, and the sets of raters that no shared group connects (one set is wanted)."""
    return {
        "groups": len(raters_of),
        "groups_rated_twice": sum(len(names) > 1 for names in raters_of.values()),
        "connected_sets": connected(raters_of.values()),
    }


def connected(raters: Iterable[Collection[str]]) -> list[list[str]]:
    """Sets of people whom shared groups link, directly or through others, sorted; raters: who rated each group."""
    neighbours: defaultdict[str, set[str]] = defaultdict(set)
    for names in raters:
        for name in names:
            neighbours[name] |= set(names)
    sets: list[list[str]] = []
    seen: set[str] = set()
    for name in sorted(neighbours):
        if name in seen:
            continue
        reached, todo = {name}, [name]
        while todo:
            new = neighbours[todo.pop()] - reached
            reached |= new
            todo += sorted(new)
        seen |= reached
        sets.append(sorted(reached))
    return sets


def judged(rounds: Mapping[str, Mapping[str, Any]], targets: Sequence[Target]) -> list[dict[str, Any]]:
    """Every target with the estimate that it is held against. ``met`` is None where there are no ratings to judge."""
    result = []
    for target in targets:
        entry: dict[str, Any] = target.model_dump(mode="json")
        found = rounds.get(target.round, {}).get(target.dimension, {}).get(target.statistic)
        if found is None:
            result.append(entry | {"estimate": None, "met": None})
            continue
        value = found[target.bound]
        result.append(entry | {"estimate": found, "met": value is not None and value >= target.at_least})
    return result


def met(targets: Sequence[Mapping[str, Any]]) -> bool:
    """Whether there was something to judge and all of it is good enough."""
    found = [target["met"] for target in targets if target["met"] is not None]
    return bool(found) and all(found)
