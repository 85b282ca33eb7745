"""Accuracy of scores on three-way labels: first better, second better, tie.

A scorer does not predict ties. A threshold eps on the margin m = score(first) - score(second) adds them: a tie is predicted where |m| <=
eps. The origin of eps determines the meaning of the figure:

- ``oracle_threshold``: the eps that is best on the very labels it is tested on (Deutsch et al. 2023, arXiv 2305.14324, as the released
  evaluation of EditReward uses it). Comparable with published figures, optimistic.
- ``cross_fitted``: eps from other sources than those it is tested on.
- ``decisive``: no ties at all, over the pairs that people decided.

Arrays: margin [pair] with NaN where a score failed, which is wrong under every rule; label [pair] in {1, 0, -1}.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from reward.evaluation.metrics import correctness

NEVER = -1.0
"""The threshold that predicts no tie, not even between equal scores."""
FOLDS = 5


def three_way(margin: np.ndarray, label: np.ndarray, threshold: float | np.ndarray) -> np.ndarray:
    """bool [pair]: whether first, second or tie is predicted as labelled. threshold: one, or [pair]."""
    return np.where(np.abs(margin) <= threshold, label == 0, (np.sign(margin) == label) & (margin != 0))


def oracle_threshold(margin: np.ndarray, label: np.ndarray) -> float:
    """The threshold with the most right pairs; the smallest where several are best.

    Candidates are NEVER and every |m|. Pairs of equal |m| become ties together, as one threshold must do to them; the released code moves
    them one by one and so can count states that no threshold reaches.
    """
    size = np.where(np.isnan(margin), np.inf, np.abs(margin))
    order = np.argsort(size, kind="stable")
    candidates = np.concatenate([[NEVER], np.unique(size[np.isfinite(size)])])
    right = three_way(margin, label, NEVER)
    gained = np.concatenate([[0], np.cumsum(np.where(label == 0, 1, -right.astype(int))[order])])  # by the n smallest turned into ties
    total = right.sum() + gained[np.searchsorted(size[order], candidates, side="right")]
    return float(candidates[np.argmax(total)])


def cross_fitted(margin: np.ndarray, label: np.ndarray, source: Sequence[str], *, seed: int, folds: int = FOLDS) -> np.ndarray:
    """bool [pair]: ``three_way`` of each fold with the oracle threshold of the others. Folds keep a source's pairs together.

    Raises ``ValueError`` where there is only one source.
    """
    names = np.unique(source)
    if len(names) < 2:
        raise ValueError("a threshold cannot be fitted on other sources than it is tested on: all comparisons share one source")
    fold_of = dict(zip(names, np.random.default_rng(seed).permutation(len(names)) % folds, strict=True))
    fold = np.array([fold_of[name] for name in source])
    thresholds = np.full(len(margin), NEVER)
    for number in np.unique(fold):
        thresholds[fold == number] = oracle_threshold(margin[fold != number], label[fold != number])
    return three_way(margin, label, thresholds)


def decisive(margin: np.ndarray, label: np.ndarray, equal: Literal["wrong", "half"]) -> np.ndarray:
    """[pair]: 1 where the order is as labelled, 0 where not, NaN where people named a tie.

    equal: what two equal scores count. Published figures count them wrong; half is what a random choice would reach.
    """
    return correctness(margin, (label + 1) / 2, equal)


def label_shares(label: np.ndarray) -> dict[str, float]:
    """Shares of the three labels: what the constant predictions reach under three-way accuracy."""
    return {name: float((label == value).mean()) for name, value in (("first", 1), ("second", -1), ("tie", 0))}
