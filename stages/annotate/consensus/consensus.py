"""Consensus methods ``mean`` and ``majority``.

``mean``: the mean over the raters who rated the whole group (training data). ``majority``: the level that more than half of at least three
raters gave, else the adjudicator's score, else a disputed cell (the benchmark, paper A.3: three experts, label by majority). An
adjudicator must not have rated the group; adjudications by its raters are ignored.

In: ratings and the rating task. Out: labels and disputed cells.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.annotate.quality.queues import DisputedCell, adjudications, settled
from stages.annotate.ratings.groups import complete_groups, complete_scores
from stages.annotate.ratings.rating_task import ADJUDICATION, RatingTask
from stages.engine.contracts import Quarantined

LEAST_RATERS = 3
"""A majority of two raters would be unanimity."""


@dataclass(frozen=True)
class Label:
    """The score of a cell: a row of the ``consensus`` contract. label_source: e.g. mean, unanimous, majority or adjudicated."""

    source_id: str
    candidate_id: str
    dimension: str
    score: float
    raters: int
    label_source: str


@dataclass(frozen=True)
class Consensus:
    """labels: by group, candidate and dimension; disputed: cells for an adjudicator; left_out: quarantine of what cannot be labelled."""

    labels: list[Label]
    disputed: list[DisputedCell]
    left_out: list[Quarantined]


def mean(ratings: pa.Table, task: RatingTask) -> Consensus:
    """Means over everybody who rated the whole group, as preference pairs use them."""
    complete, left_out = complete_groups(ratings, task)
    labels = [
        Label(group.source_id, candidate, dimension, float(group.scores[place, column]), group.raters, "mean")
        for group in complete
        for place, candidate in enumerate(group.candidates)
        for column, dimension in enumerate(task.dimensions)
    ]
    return Consensus(labels, [], left_out)


def of_experts(ratings: pa.Table, round: str) -> pa.Table:
    """The ratings of one round, and the adjudications."""
    return ratings.filter(pc.is_in(ratings["round"], pa.array([round, ADJUDICATION])))


def majority(ratings: pa.Table, task: RatingTask, *, groups: Sequence[str] | None = None) -> Consensus:
    """Majority of at least three raters of the whole group, else the adjudicator's score. groups: to label, default all."""
    by_group, adjudicated = complete_scores(ratings, task), adjudications(ratings)
    labels: list[Label] = []
    disputed: list[DisputedCell] = []
    left_out: list[Quarantined] = []
    for group in sorted(task.sampled if groups is None else groups):
        scores = by_group.get(group, {})
        if len(scores) < LEAST_RATERS:
            message = f"{len(scores)} rated the whole group, a majority needs {LEAST_RATERS}"
            left_out.append(Quarantined(group, f"group {group}", "too-few-raters", message))
            continue
        stacked = np.stack([scores[name] for name in sorted(scores)])  # [raters, candidates, dimensions]
        for row, candidate in enumerate(sorted(task.sampled[group])):
            for column, dimension in enumerate(task.dimensions):
                given = stacked[:, row, column].tolist()
                level, count = Counter(given).most_common(1)[0]
                if 2 * count > len(given):
                    source = "unanimous" if count == len(given) else "majority"
                    labels.append(Label(group, candidate, dimension, level, len(given), source))
                elif (score := settled(adjudicated, candidate, dimension, scores)) is not None:
                    labels.append(Label(group, candidate, dimension, score, len(given), "adjudicated"))
                else:
                    disputed.append(DisputedCell(group, candidate, dimension, tuple(sorted(given))))
    return Consensus(labels, disputed, left_out)
