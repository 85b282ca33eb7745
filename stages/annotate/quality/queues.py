"""The re-annotation queue (groups for a further rater) and the adjudication queue (cells for an adjudicator).

A group enters the re-annotation queue when nobody's accepted ratings cover it completely, or when its raters differ by more than the limit
and are fewer than the rules allow. When a group has all its raters, each cell on which two of them are at least two levels apart enters the
adjudication queue. An adjudicator must not have rated the group and sees the given scores, lowest first, without names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from stages.annotate.config import ReannotationRules
from stages.annotate.packet.write import TEMPLATE, csv_table
from stages.annotate.ratings.delivery import SCORES_GIVEN
from stages.annotate.ratings.groups import cells, complete_scores
from stages.annotate.ratings.rating_task import ADJUDICATION, RatingTask, level_width

Adjudications = Mapping[tuple[str, str], Mapping[str, float]]
"""Score of each adjudicator by (candidate, dimension)."""


@dataclass(frozen=True)
class QueuedGroup:
    """A group for a further rater. raters: people who must not get it again."""

    group_id: str
    reason: str
    message: str
    raters: tuple[str, ...]


@dataclass(frozen=True)
class DisputedCell:
    """A cell for an adjudicator. scores: as given, lowest first."""

    group_id: str
    candidate_id: str
    dimension: str
    scores: tuple[float, ...]


def queues(
    accepted: pa.Table, rated: Mapping[str, Collection[str]], task: RatingTask, rules: ReannotationRules
) -> tuple[list[QueuedGroup], list[DisputedCell]]:
    """Both queues, sorted. rated: raters of each group, accepted or not."""
    by_group = complete_scores(accepted, task)
    adjudicated = adjudications(accepted)
    level = level_width(task.scale.levels)
    groups: list[QueuedGroup] = []
    disputed: list[DisputedCell] = []
    for group in sorted(rated):
        scores = by_group.get(group, {})
        everybody = tuple(sorted(rated[group]))
        if not scores:
            message = "nobody whose ratings are accepted has rated the whole group"
            groups.append(QueuedGroup(group, "no-accepted-rater", message, everybody))
            continue
        stacked = np.stack([scores[name] for name in sorted(scores)])  # [raters, candidates, dimensions]
        apart = mean_difference(stacked) / level
        if len(scores) < rules.raters:
            if apart > rules.difference:
                message = f"{len(scores)} raters differ by {apart:.2f} levels on average, at most {rules.difference:g} wanted"
                groups.append(QueuedGroup(group, "raters-differ", message, everybody))
            continue
        # Rounding comes first: scores that are means over several rounds carry rounding errors, and the limit must not depend on them.
        for row, column in np.argwhere(np.round(np.ptp(stacked, axis=0), 9) >= 2 * level):
            candidate, dimension = sorted(task.sampled[group])[row], task.dimensions[column]
            if settled(adjudicated, candidate, dimension, rated[group]) is None:
                disputed.append(DisputedCell(group, candidate, dimension, tuple(sorted(stacked[:, row, column].tolist()))))
    return groups, disputed


def mean_difference(stacked: np.ndarray) -> float:
    """Mean absolute difference over all cells and pairs of raters of [raters, candidates, dimensions]; 0 for one rater."""
    first, second = np.triu_indices(len(stacked), 1)
    return float(np.abs(stacked[first] - stacked[second]).mean()) if len(first) else 0.0


def reannotation_csv(groups: Sequence[QueuedGroup]) -> bytes:
    """``reannotate.csv``, which `annotate export --groups` reads."""
    rows = [vars(group) | {"raters": " ".join(group.raters)} for group in groups]
    return csv_table(rows, ("group_id", "reason", "message", "raters"))


def adjudication_csv(disputed: Sequence[DisputedCell], task: RatingTask) -> bytes:
    """``adjudicate.csv`` in the canonical long format, which ingest reads once it is filled in; ingest ignores ``scores_given``."""
    rows = [
        {
            "group_id": cell.group_id,
            "candidate_id": cell.candidate_id,
            "dimension": cell.dimension,
            "round": ADJUDICATION,
            "rubric_version": task.rubric_version,
            "project": task.project,
            SCORES_GIVEN: " ".join(f"{score:g}" for score in cell.scores),
        }
        for cell in disputed
    ]
    return csv_table(rows, (*TEMPLATE, SCORES_GIVEN))


def adjudications(ratings: pa.Table) -> Adjudications:
    """All ratings of round adjudication."""
    found: defaultdict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for (candidate, dimension, annotator, round), score in cells(ratings).items():
        if round == ADJUDICATION:
            found[candidate, dimension][annotator] = score
    return found


def settled(given: Adjudications, candidate: str, dimension: str, raters: Collection[str]) -> float | None:
    """The score of a cell by adjudicators who are not among the ``raters`` of its group; None for no such score, or several."""
    scores = {score for name, score in given.get((candidate, dimension), {}).items() if name not in raters}
    return scores.pop() if len(scores) == 1 else None
