"""Slots: a group rated by one person in one round. Only a slot with every sampled candidate in every dimension counts.

The severity of a rater cancels inside a pair only if both candidates were rated by the same people, so ratings of half a group give no
pairs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

import pyarrow as pa

from stages.annotate.ratings.delivery import Cell
from stages.annotate.ratings.manifest import Manifest
from stages.annotate.ratings.rounds import ADJUDICATION, EXAM, RANKING

Slot = tuple[str, str, str]
"""group, annotator, round."""


def slots(cells: Iterable[Cell], manifest: Manifest) -> Counter[Slot]:
    """How many ratings each slot has."""
    return Counter((manifest.group_of[candidate], annotator, round) for candidate, _, annotator, round in cells)


def wanted(group: str, manifest: Manifest) -> int:
    """How many ratings make a slot of the group complete."""
    return len(manifest.sampled[group]) * len(manifest.dimensions)


def raters_of(ratings: pa.Table) -> dict[str, set[str]]:
    """Who scored each group; exams and rankings are no scores of a group, and an adjudicator rates single cells."""
    raters: defaultdict[str, set[str]] = defaultdict(set)
    for group, name, round in zip(*(ratings[column].to_pylist() for column in ("source_id", "annotator", "round")), strict=True):
        if round not in (EXAM, ADJUDICATION, RANKING):
            raters[group].add(name)
    return dict(raters)


def warnings(cells: Iterable[Cell], manifest: Manifest) -> list[str]:
    """A sentence about incomplete slots, if there are any; an adjudicator rates single cells."""
    incomplete = sorted(
        (slot, count) for slot, count in slots(cells, manifest).items() if count < wanted(slot[0], manifest) and slot[2] != ADJUDICATION
    )
    if not incomplete:
        return []
    (group, annotator, round), count = incomplete[0]
    return [
        f"groups rated incompletely, which give no pairs until the rest is ingested: {len(incomplete):,}, "
        f"e.g. group {group} by {annotator} in round {round}: {count} of {wanted(group, manifest)} ratings"
    ]
