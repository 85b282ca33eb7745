"""Does a judge of pairs prefer a place? Every comparison is judged in both orders (EditReward, section A.8).

A.8 relabels a benchmark so that the better edit is always shown first, then always second, and compares the accuracies: 55.28 % and 50.16
% for one judge, a gap of 5.11 points. Judging each pair in both orders gives the same two accuracies on the same pairs, without the noise
of two samples.

A model that scores each edit by itself cannot see the order: its gap is 0 by construction (``pointwise_judge``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from reward.benchmarks.figures import DEFAULT, Bootstrap, Figure
from reward.benchmarks.items import OVERALL, Comparison, Edit, Scores, margins

Judge = Callable[[Edit, Edit], int | None]
"""From the edit shown first and the one shown second to 1 (first is better), -1 (second), 0 (tie) or None (no answer)."""


@dataclass(frozen=True)
class PositionBias:
    """Over comparisons that people decided, but for `consistent` and `first_chosen`, which are over all.

    better_first, better_second: accuracy when the better edit is shown first, or second. gap: their difference; positive: the first place
    is favoured. symmetric: the mean of the two. both_orders: share judged rightly in both orders. consistent: share with the same verdict
    in both orders (no answer is never consistent). first_chosen: share of verdicts for the edit shown first among verdicts that are no
    tie; 0.5 without bias. unanswered: calls without an answer; they are wrong.
    """

    better_first: Figure
    better_second: Figure
    gap: Figure
    symmetric: Figure
    both_orders: Figure
    consistent: Figure
    first_chosen: Figure
    calls: int
    unanswered: int


def position_bias(judge: Judge, items: Sequence[Comparison], bootstrap: Bootstrap = DEFAULT) -> PositionBias:
    """Ask the judge twice per comparison. Raises ``ValueError`` for an answer that is none."""
    as_given = np.array([_verdict(judge, item.first, item.second) for item in items])
    swapped = np.array([_verdict(judge, item.second, item.first) for item in items])
    label, source = np.array([item.label for item in items]), [item.source for item in items]
    decided = np.where(label == 0, np.nan, 1.0)
    right_as_given, right_swapped = (as_given == label) * decided, (swapped == -label) * decided
    first, second = np.where(label == 1, right_as_given, right_swapped), np.where(label == 1, right_swapped, right_as_given)
    verdicts = np.stack([as_given, swapped])  # [order, pair]
    chosen = np.where(np.isnan(verdicts) | (verdicts == 0), np.nan, verdicts == 1)
    return PositionBias(
        better_first=bootstrap.mean(first, source),
        better_second=bootstrap.mean(second, source),
        gap=bootstrap.mean(first - second, source),
        symmetric=bootstrap.mean((first + second) / 2, source),
        both_orders=bootstrap.mean(first * second, source),
        consistent=bootstrap.mean(as_given == -swapped, source),
        first_chosen=bootstrap.mean(chosen.ravel(), [*source, *source]),
        calls=2 * len(items),
        unanswered=int(np.isnan(verdicts).sum()),
    )


def pointwise_judge(scores: Scores, threshold: float = 0.0) -> Judge:
    """A scorer of single edits as a judge of pairs: a tie where the scores differ by at most the threshold, no answer where one is
    missing.
    """

    def judge(first: Edit, second: Edit) -> int | None:
        pair = Comparison("", first, second, 0, "")
        margin = float(margins([pair], scores, OVERALL)[0])
        if np.isnan(margin):
            return None
        return 0 if abs(margin) <= threshold else int(np.sign(margin))

    return judge


def _verdict(judge: Judge, first: Edit, second: Edit) -> float:
    answer = judge(first, second)
    if answer not in (1, 0, -1, None):
        raise ValueError(f"a judge of pairs answered {answer!r}; expected 1 (first), -1 (second), 0 (tie) or None (no answer)")
    return float("nan") if answer is None else float(answer)
