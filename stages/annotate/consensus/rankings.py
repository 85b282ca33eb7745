"""Rankings of whole groups (EditHF, section on data): ratings of round ranking, whose score is the rank of the candidate, 1 being best.

The ledger contains them beside scores, on the scale 1 to the number of candidates of the group; the round distinguishes the two. Out: per
group and dimension Kendall's coefficient of concordance and the mean rank of every candidate; pairs in the order of the mean ranks.

Sources: M. G. Kendall, B. Babington Smith, The problem of m rankings, Annals of Mathematical Statistics 10, 1939; with ties: M. G. Kendall,
Rank Correlation Methods, 1948, chapter 6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.stats import rankdata

from stages.annotate.ratings.groups import MEAN_DIGITS, complete_scores
from stages.annotate.ratings.rating_task import RANKING, RatingTask


@dataclass(frozen=True)
class GroupRanking:
    """candidates: sorted ids; mean_ranks: [candidate], 1 is best; concordance: Kendall's W, None for one rater or where all are tied."""

    group_id: str
    dimension: str
    candidates: tuple[str, ...]
    mean_ranks: np.ndarray
    concordance: float | None
    raters: tuple[str, ...]


@dataclass(frozen=True)
class RankPair:
    """Two candidates of which the first has the better mean rank. gap: difference of the mean ranks."""

    group_id: str
    dimension: str
    better: str
    worse: str
    gap: float


def kendalls_w(ranks: np.ndarray) -> float | None:
    """Concordance of rankings [raters, candidates], ties by average rank: 0 none, 1 complete; None where it is not defined."""
    average = rankdata(ranks, axis=1)
    m, n = average.shape
    # Tied ranks reduce the largest possible variance of the rank sums: t^3 - t per rater for each set of t ties (Kendall 1948, chapter 6).
    ties = sum(float((counts**3 - counts).sum()) for counts in (np.unique(row, return_counts=True)[1] for row in average))
    most = m**2 * (n**3 - n) - m * ties
    if m < 2 or most <= 0:
        return None
    sums = average.sum(axis=0)
    return float(12 * ((sums - sums.mean()) ** 2).sum() / most)


def group_rankings(ratings: pa.Table, task: RatingTask) -> list[GroupRanking]:
    """Rankings of every completely ranked group, sorted by group and dimension."""
    ranked = ratings.filter(pc.equal(ratings["round"], RANKING))
    found = []
    for group, by_name in sorted(complete_scores(ranked, task).items()):
        names = tuple(sorted(by_name))
        stacked = np.stack([by_name[name] for name in names])  # [raters, candidates, dimensions]
        for column, dimension in enumerate(task.dimensions):
            ranks = rankdata(stacked[:, :, column], axis=1)
            means = np.round(ranks.mean(axis=0), MEAN_DIGITS)
            found.append(GroupRanking(group, dimension, tuple(sorted(task.sampled[group])), means, kendalls_w(ranks), names))
    return found


def pairs(rankings: list[GroupRanking]) -> tuple[list[RankPair], int]:
    """Pairs ordered by mean rank, and the number of pairs with equal mean ranks."""
    found, equal = [], 0
    for ranking in rankings:
        for a, b in combinations(range(len(ranking.candidates)), 2):
            gap = float(ranking.mean_ranks[b] - ranking.mean_ranks[a])
            if gap == 0:
                equal += 1
                continue
            first, second = (a, b) if gap > 0 else (b, a)
            found.append(
                RankPair(ranking.group_id, ranking.dimension, ranking.candidates[first], ranking.candidates[second], round(abs(gap), 9))
            )
    return found, equal


def without_contradictions(found: list[RankPair], score: Mapping[tuple[str, str], float]) -> tuple[list[RankPair], int]:
    """Pairs that the scores by (candidate, dimension) do not reverse, and the number of reversed pairs (not equal or absent scores)."""
    kept = []
    for pair in found:
        better, worse = score.get((pair.better, pair.dimension)), score.get((pair.worse, pair.dimension))
        if better is None or worse is None or better >= worse:
            kept.append(pair)
    return kept, len(found) - len(kept)
