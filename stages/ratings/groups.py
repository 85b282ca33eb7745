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

from stages.ratings.manifest import Manifest
from stages.ratings.slots import Slot, slots, wanted
from stages.ratings.validate import Cell
from stages.units import Quarantined

MEAN_DIGITS = 9
"""Means are rounded so that equal ones are equal numbers."""


@dataclass(frozen=True)
class CompleteGroup:
    """candidates: ids in their own order, without meaning; scores: means [candidate, dimension]; raters: people behind the means."""

    source_id: str
    candidates: tuple[str, ...]
    scores: np.ndarray
    raters: int


def complete_groups(ratings: pa.Table, manifest: Manifest) -> tuple[list[CompleteGroup], list[Quarantined]]:
    """All groups of the manifest, sorted by id: either complete or quarantined."""
    score = cells(ratings)
    counts = slots(score, manifest)
    slots_of: defaultdict[str, list[Slot]] = defaultdict(list)
    for slot in sorted(counts):
        slots_of[slot[0]].append(slot)
    complete, quarantine = [], []
    for group in sorted(manifest.sampled):
        whole = [slot for slot in slots_of[group] if counts[slot] == wanted(group, manifest)]
        if whole:
            complete.append(_mean(group, whole, score, manifest))
        else:
            quarantine.append(_incomplete(group, {slot: counts[slot] for slot in slots_of[group]}, manifest))
    return complete, quarantine


def cells(ratings: pa.Table) -> dict[Cell, float]:
    """Score of every (candidate, dimension, annotator, round)."""
    columns = [ratings[name].to_pylist() for name in ("candidate_id", "dimension", "annotator", "round")]
    return dict(zip(zip(*columns, strict=True), ratings["score"].to_pylist(), strict=True))


def _mean(group: str, whole: list[Slot], score: Mapping[Cell, float], manifest: Manifest) -> CompleteGroup:
    candidates = tuple(sorted(manifest.sampled[group]))
    values = [
        [[score[candidate, dimension, annotator, round] for dimension in manifest.dimensions] for candidate in candidates]
        for _, annotator, round in whole
    ]
    means = np.round(np.mean(values, axis=0), MEAN_DIGITS)
    return CompleteGroup(group, candidates, means, len({annotator for _, annotator, _ in whole}))


def _incomplete(group: str, counts: Mapping[Slot, int], manifest: Manifest) -> Quarantined:
    if not counts:
        return Quarantined(group, f"group {group}", "unrated-group", "nobody has rated the group")
    most = max(counts, key=lambda slot: counts[slot])
    _, annotator, round = most
    message = f"nobody rated the whole group, at most {counts[most]} of {wanted(group, manifest)} ratings ({annotator}, round {round})"
    return Quarantined(group, f"group {group}", "incomplete-group", message)
