"""Consensus: one score per candidate and dimension out of several people's.

``mean``: the mean over the raters who rated the whole group (training data). ``majority``: the level that more than half of at least three
raters gave, else the adjudicator's, else none yet (the benchmark, paper A.3: three experts, the final label by majority). An adjudicator
is somebody who has not rated the group; what a rater of the group adjudicates does not count.

In: ratings and the manifest. Out: cells, and those without a majority.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.annotate.quality.adjudication import Disputed, adjudications, settled
from stages.annotate.ratings.groups import complete_groups, rated_whole
from stages.annotate.ratings.manifest import Manifest
from stages.annotate.ratings.rounds import ADJUDICATION
from stages.engine.contracts import Quarantined

LEAST_RATERS = 3
"""A majority of two is unanimity."""


@dataclass(frozen=True)
class Label:
    """The score of a cell; ``source`` is mean, unanimous, majority or adjudicated."""

    group_id: str
    candidate_id: str
    dimension: str
    score: float
    raters: int
    source: str


@dataclass(frozen=True)
class Consensus:
    """labels: by group, candidate and dimension; disputed: cells for an adjudicator; left_out: groups that cannot be labelled, and why."""

    labels: list[Label]
    disputed: list[Disputed]
    left_out: list[Quarantined]


def mean(ratings: pa.Table, manifest: Manifest) -> Consensus:
    """Means over everybody who rated the whole group: :func:`stages.annotate.ratings.groups.complete_groups`, as preference pairs have
    them."""
    complete, left_out = complete_groups(ratings, manifest)
    labels = [
        Label(group.source_id, candidate, dimension, float(group.scores[place, column]), group.raters, "mean")
        for group in complete
        for place, candidate in enumerate(group.candidates)
        for column, dimension in enumerate(manifest.dimensions)
    ]
    return Consensus(labels, [], left_out)


def of_experts(ratings: pa.Table, round: str) -> pa.Table:
    """The ratings that a majority is taken of: those of one round, and the adjudications."""
    return ratings.filter(pc.is_in(ratings["round"], pa.array([round, ADJUDICATION])))


def majority(ratings: pa.Table, manifest: Manifest, *, judged: Sequence[str] | None = None) -> Consensus:
    """Majority of at least three raters of the whole group, or the adjudicator. judged: groups that should have them; default: all."""
    by_group, given_later = rated_whole(ratings, manifest), adjudications(ratings)
    labels: list[Label] = []
    disputed: list[Disputed] = []
    left_out: list[Quarantined] = []
    for group in sorted(manifest.sampled if judged is None else judged):
        scores = by_group.get(group, {})
        if len(scores) < LEAST_RATERS:
            message = f"{len(scores)} rated the whole group, a majority needs {LEAST_RATERS}"
            left_out.append(Quarantined(group, f"group {group}", "too-few-raters", message))
            continue
        stacked = np.stack([scores[name] for name in sorted(scores)])  # [raters, candidates, dimensions]
        for place, candidate in enumerate(sorted(manifest.sampled[group])):
            for column, dimension in enumerate(manifest.dimensions):
                given = stacked[:, place, column].tolist()
                level, count = Counter(given).most_common(1)[0]
                if 2 * count > len(given):
                    source = "unanimous" if count == len(given) else "majority"
                    labels.append(Label(group, candidate, dimension, level, len(given), source))
                elif (score := settled(given_later, candidate, dimension, scores)) is not None:
                    labels.append(Label(group, candidate, dimension, score, len(given), "adjudicated"))
                else:
                    disputed.append(Disputed(group, candidate, dimension, tuple(sorted(given))))
    return Consensus(labels, disputed, left_out)


def table(labels: Sequence[Label]) -> list[dict[str, Any]]:
    """Rows of the ``consensus`` contract."""
    return [
        {
            "source_id": label.group_id,
            "candidate_id": label.candidate_id,
            "dimension": label.dimension,
            "score": label.score,
            "raters": label.raters,
            "label_source": label.source,
        }
        for label in labels
    ]
