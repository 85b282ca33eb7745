"""Slots and completely rated groups: preference pairs are built from these.

A slot is a group rated by one person in one round; it is complete with a rating of every sampled candidate in every dimension. Only
complete slots count. A rater's severity cancels inside a pair only if the same people rated both candidates, so a partly rated group
gives no pairs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.annotate.ratings.delivery import Cell
from stages.annotate.ratings.rating_task import ADJUDICATION, EXAM, RANKING, RatingTask
from stages.engine.contracts import Quarantined

MEAN_DIGITS = 9
"""Means are rounded so that equal means are equal numbers."""

Slot = tuple[str, str, str]
"""group, annotator, round."""

Scores = Mapping[str, np.ndarray]
"""Scores of a group by annotator: [candidate, dimension]."""


@dataclass(frozen=True)
class CompleteGroup:
    """candidates: sorted ids; scores: means [candidate, dimension]; raters: number of people behind the means."""

    source_id: str
    candidates: tuple[str, ...]
    scores: np.ndarray
    raters: int


def complete_groups(ratings: pa.Table, task: RatingTask) -> tuple[list[CompleteGroup], list[Quarantined]]:
    """Mean scores of the groups that at least one person rated completely, and the quarantine of all other groups.

    Both are sorted by group id. ratings: scores without rankings. The means are over the people who rated the whole group.
    """
    by_group = complete_scores(ratings, task)
    counts = slots(_opinions(ratings) if task.sampled.keys() - by_group.keys() else (), task)
    fullest = {slot[0]: slot for slot in sorted(counts, key=lambda slot: (counts[slot], slot))}
    complete, quarantine = [], []
    for group in sorted(task.sampled):
        if group in by_group:
            scores = by_group[group]
            means = np.round(np.mean([scores[name] for name in sorted(scores)], axis=0), MEAN_DIGITS)
            complete.append(CompleteGroup(group, tuple(sorted(task.sampled[group])), means, len(scores)))
        else:
            quarantine.append(_incomplete(group, fullest.get(group), counts, task))
    return complete, quarantine


def complete_scores(ratings: pa.Table, task: RatingTask) -> dict[str, Scores]:
    """Scores by group and annotator of everybody who rated the whole group, candidates sorted by id.

    Several rounds of one annotator are averaged to one opinion. Adjudications are left out, because an adjudicator has seen the other
    scores.
    """
    score = _opinions(ratings)
    counts = slots(score, task)
    found: defaultdict[str, defaultdict[str, list[list[list[float]]]]] = defaultdict(lambda: defaultdict(list))
    for slot in sorted(counts):
        group, annotator, round = slot
        if counts[slot] == slot_size(group, task):
            candidates = sorted(task.sampled[group])
            found[group][annotator].append(
                [[score[candidate, name, annotator, round] for name in task.dimensions] for candidate in candidates]
            )
    return {group: {name: np.mean(values, axis=0) for name, values in by_name.items()} for group, by_name in found.items()}


def cells(ratings: pa.Table) -> dict[Cell, float]:
    """Score of every (candidate, dimension, annotator, round)."""
    columns = [ratings[name].to_pylist() for name in ("candidate_id", "dimension", "annotator", "round")]
    return dict(zip(zip(*columns, strict=True), ratings["score"].to_pylist(), strict=True))


def slots(cells: Iterable[Cell], task: RatingTask) -> Counter[Slot]:
    """Number of ratings per slot."""
    return Counter((task.group_of[candidate], annotator, round) for candidate, _, annotator, round in cells)


def slot_size(group: str, task: RatingTask) -> int:
    """Number of ratings in a complete slot of the group."""
    return len(task.sampled[group]) * len(task.dimensions)


def raters_of(ratings: pa.Table) -> dict[str, set[str]]:
    """Raters of each group by its id, without exams, rankings and adjudications (an adjudicator rates single cells)."""
    raters: defaultdict[str, set[str]] = defaultdict(set)
    for group, name, round in zip(*(ratings[column].to_pylist() for column in ("source_id", "annotator", "round")), strict=True):
        if round not in (EXAM, ADJUDICATION, RANKING):
            raters[group].add(name)
    return dict(raters)


def incomplete_warnings(cells: Iterable[Cell], task: RatingTask) -> list[str]:
    """One sentence if slots are incomplete, else nothing. Adjudications do not count."""
    incomplete = sorted(
        (slot, count) for slot, count in slots(cells, task).items() if count < slot_size(slot[0], task) and slot[2] != ADJUDICATION
    )
    if not incomplete:
        return []
    (group, annotator, round), count = incomplete[0]
    return [
        f"{len(incomplete):,} incompletely rated groups give no pairs until the rest is ingested, "
        f"e.g. group {group} by {annotator} in round {round}: {count} of {slot_size(group, task)} ratings"
    ]


def _opinions(ratings: pa.Table) -> dict[Cell, float]:
    return cells(ratings.filter(pc.not_equal(ratings["round"], ADJUDICATION)))


def _incomplete(group: str, fullest: Slot | None, counts: Mapping[Slot, int], task: RatingTask) -> Quarantined:
    if fullest is None:
        return Quarantined(group, f"group {group}", "unrated-group", "nobody has rated the group")
    _, annotator, round = fullest
    message = f"nobody rated the whole group, at most {counts[fullest]} of {slot_size(group, task)} ratings ({annotator}, round {round})"
    return Quarantined(group, f"group {group}", "incomplete-group", message)
