"""Active selection of unrated groups by expected information, model error and coverage.

In: a model's scores of the unrated groups; its scores and the raters' scores of rated groups. Out: groups in the order in which to rate
them, with the numbers behind it. A group's worth is the product of

- information: over its pairs, the mutual information of the label and the score difference (BALD; Houlsby et al. 2011) under the model's
  Gaussian scores: entropy of P(a better) minus the expected entropy given the difference, in nats;
- disagreement: how often the model orders strict pairs of rated groups of the same kind of edit differently from the raters, relative to
  all kinds, shrunk towards 1 where few pairs are rated;
- coverage: number of groups of the kind if all kinds were rated evenly, over their actual number, including groups chosen before.

Selection is greedy: the best group is taken, and coverage is updated. Ties are broken by id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import entr, expit

from reward.model.comparison import NODES, WEIGHTS

SHRINKAGE = 50
"""Pairs at the average error rate that are added to every kind of edit."""
DIGITS = 6
"""Numbers are rounded before they are compared, so that rounding errors do not decide."""


@dataclass(frozen=True)
class ScoredGroup:
    """mean, sigma: the model's overall scores [candidate]; rated: the raters' overall scores [candidate], None for an unrated group."""

    group_id: str
    task: str
    mean: np.ndarray
    sigma: np.ndarray
    rated: np.ndarray | None = None


@dataclass(frozen=True)
class ChosenGroup:
    """A chosen group with its factors."""

    group_id: str
    task: str
    information: float
    disagreement: float
    coverage: float

    @property
    def worth(self) -> float:
        """Product of the three factors, by which groups are ordered."""
        return self.information * self.disagreement * self.coverage


def information(mean: np.ndarray, sigma: np.ndarray) -> float:
    """Sum over the pairs of a group of the mutual information of label and score difference, in nats. mean, sigma: [candidate]."""
    a, b = np.triu_indices(len(mean), 1)
    difference = (mean[a] - mean[b])[:, None] + np.hypot(sigma[a], sigma[b])[:, None] * NODES  # [pair, node]
    better = expit(difference)
    known = (entr(better) + entr(1 - better)) @ WEIGHTS
    expected = better @ WEIGHTS
    return round(float(np.maximum(entr(expected) + entr(1 - expected) - known, 0).sum()), DIGITS)


def disagreement(rated: Sequence[ScoredGroup]) -> dict[str, float]:
    """Per kind of edit, the share of strict pairs on which model and raters differ, over that of all kinds, shrunk to 1."""
    wrong: Counter[str] = Counter()
    pairs: Counter[str] = Counter()
    for group in rated:
        assert group.rated is not None
        a, b = np.triu_indices(len(group.mean), 1)
        gap = np.round(group.rated[a] - group.rated[b], DIGITS)
        margin = (group.mean[a] - group.mean[b]) * np.sign(gap)
        wrong[group.task] += int((margin[gap != 0] <= 0).sum())
        pairs[group.task] += int((gap != 0).sum())
    if not wrong.total():
        return {}
    rate = wrong.total() / pairs.total()
    return {task: round((wrong[task] + SHRINKAGE * rate) / (pairs[task] + SHRINKAGE) / rate, DIGITS) for task in sorted(pairs)}


def choose(pool: Sequence[ScoredGroup], rated: Sequence[ScoredGroup], done: Mapping[str, int], count: int) -> list[ChosenGroup]:
    """The ``count`` groups of the pool with the highest worth, best first. done: number of rated groups by kind of edit."""
    amount = {group.group_id: information(group.mean, group.sigma) for group in pool}
    factor = disagreement(rated)
    queues: dict[str, list[ScoredGroup]] = {}
    for group in sorted(pool, key=lambda group: (-amount[group.group_id], group.group_id)):
        queues.setdefault(group.task, []).append(group)
    total = Counter(done) + Counter(group.task for group in pool)
    taken = Counter({task: done.get(task, 0) for task in total})
    chosen: list[ChosenGroup] = []
    while len(chosen) < count and any(queues.values()):
        choices = []
        for task in (name for name, queue in queues.items() if queue):
            expected = total[task] / total.total() * taken.total()
            coverage = round((expected + 1) / (taken[task] + 1), DIGITS)
            first = queues[task][0].group_id  # within a kind only the information differs
            choices.append(ChosenGroup(first, task, amount[first], factor.get(task, 1.0), coverage))
        best = min(choices, key=lambda choice: (-choice.worth, choice.group_id))
        queues[best.task].pop(0)
        taken[best.task] += 1
        chosen.append(best)
    return chosen
