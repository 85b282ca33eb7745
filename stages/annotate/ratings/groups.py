"""Completely rated groups: what preference pairs are made of.

In: the ledger's ratings and the manifest. Out: per group the mean score of every sampled candidate in every dimension, over the raters who
rated the whole group; groups that nobody rated as a whole are quarantined, saying what is missing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.annotate.ratings.delivery import Cell
from stages.annotate.ratings.manifest import Manifest
from stages.annotate.ratings.rounds import ADJUDICATION
from stages.annotate.ratings.slots import Slot, slots, wanted
from stages.engine.contracts import Quarantined

MEAN_DIGITS = 9
"""Means are rounded so that equal ones are equal numbers."""

Scores = Mapping[str, np.ndarray]
"""By annotator the scores of a group: [candidate, dimension]."""


@dataclass(frozen=True)
class CompleteGroup:
    """candidates: ids in their own order, without meaning; scores: means [candidate, dimension]; raters: people behind the means."""

    source_id: str
    candidates: tuple[str, ...]
    scores: np.ndarray
    raters: int


def complete_groups(ratings: pa.Table, manifest: Manifest) -> tuple[list[CompleteGroup], list[Quarantined]]:
    """All groups of the manifest, sorted by id: either complete or quarantined. ratings: scores, without rankings."""
    by_group = rated_whole(ratings, manifest)
    counts = slots(_own(ratings) if manifest.sampled.keys() - by_group.keys() else (), manifest)
    fullest = {slot[0]: slot for slot in sorted(counts, key=lambda slot: (counts[slot], slot))}
    complete, quarantine = [], []
    for group in sorted(manifest.sampled):
        if group in by_group:
            scores = by_group[group]
            means = np.round(np.mean([scores[name] for name in sorted(scores)], axis=0), MEAN_DIGITS)
            complete.append(CompleteGroup(group, tuple(sorted(manifest.sampled[group])), means, len(scores)))
        else:
            quarantine.append(_incomplete(group, fullest.get(group), counts, manifest))
    return complete, quarantine


def rated_whole(ratings: pa.Table, manifest: Manifest) -> dict[str, Scores]:
    """What everybody said who rated a whole group, by group and annotator, candidates sorted by id.

    The one rule of who counts in a group: several rounds of one annotator are averaged to one opinion, and adjudications, given in
    knowledge of the others' scores, are none.
    """
    score = _own(ratings)
    counts = slots(score, manifest)
    found: defaultdict[str, defaultdict[str, list[list[list[float]]]]] = defaultdict(lambda: defaultdict(list))
    for slot in sorted(counts):
        group, annotator, round = slot
        if counts[slot] == wanted(group, manifest):
            candidates = sorted(manifest.sampled[group])
            found[group][annotator].append(
                [[score[candidate, name, annotator, round] for name in manifest.dimensions] for candidate in candidates]
            )
    return {group: {name: np.mean(values, axis=0) for name, values in by_name.items()} for group, by_name in found.items()}


def cells(ratings: pa.Table) -> dict[Cell, float]:
    """Score of every (candidate, dimension, annotator, round)."""
    columns = [ratings[name].to_pylist() for name in ("candidate_id", "dimension", "annotator", "round")]
    return dict(zip(zip(*columns, strict=True), ratings["score"].to_pylist(), strict=True))


def _own(ratings: pa.Table) -> dict[Cell, float]:
    return cells(ratings.filter(pc.not_equal(ratings["round"], ADJUDICATION)))


def _incomplete(group: str, fullest: Slot | None, counts: Mapping[Slot, int], manifest: Manifest) -> Quarantined:
    if fullest is None:
        return Quarantined(group, f"group {group}", "unrated-group", "nobody has rated the group")
    _, annotator, round = fullest
    message = f"nobody rated the whole group, at most {counts[fullest]} of {wanted(group, manifest)} ratings ({annotator}, round {round})"
    return Quarantined(group, f"group {group}", "incomplete-group", message)
