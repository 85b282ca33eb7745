"""Gwet's AC1 and AC2: agreement beyond chance that is also meaningful when one level dominates.

In: a panel of ratings with any number of raters per item. Out: AC1 (no weights) and AC2 with ordinal and with quadratic weights, each with
its interval over groups. When raters nearly always give the same level, alpha and kappa are low although the raters agree, and AC2 is
high; so read both.

Source: K. L. Gwet, Computing inter-rater reliability and its variance in the presence of high agreement, British Journal of Mathematical
and Statistical Psychology 61, 2008; weights: Handbook of Inter-Rater Reliability, 4th edition, 2014, chapter 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from stages.annotate.agreement.alpha import NO_OVERLAP, NO_VARIATION, Panel, item_counts
from stages.annotate.agreement.bootstrap import add_up, estimate, ratio, resampled_sums

Weights = Literal["identity", "ordinal", "quadratic"]
COEFFICIENTS: dict[str, Weights] = {"ac1": "identity", "ac2_ordinal": "ordinal", "ac2_quadratic": "quadratic"}


def coefficients(panel: Panel, levels: Sequence[float], *, seed: int) -> dict[str, Any]:
    """AC1 and AC2 of one dimension as ``{value, low, high, n}``, n being the items rated at least twice."""
    result = {}
    for name, weights in COEFFICIENTS.items():
        matrix = agreement_weights(levels, weights)
        tables, items = group_tables(panel, levels, matrix)
        undefined = NO_VARIATION if items else NO_OVERLAP
        found = estimate(tables, resampled_sums(tables, seed=seed), lambda t, w=matrix: ac(t, w), n=items, undefined=undefined)
        result[name] = found.to_json()
    return result


def agreement_weights(levels: Sequence[float], kind: Weights) -> np.ndarray:
    """Weight of every pair of levels [levels, levels]: 1 on the diagonal, 0 for the two ends of the scale.

    ordinal: 1 - C(d + 1, 2) / C(q, 2) for levels that are d steps apart of q levels; quadratic: 1 - (difference / range) squared.
    """
    if kind == "identity":
        return np.eye(len(levels))
    if kind == "quadratic":
        values = np.asarray(levels, dtype=np.float64)
        return 1.0 - (np.subtract.outer(values, values) / (values[-1] - values[0])) ** 2
    steps = np.abs(np.subtract.outer(np.arange(len(levels)), np.arange(len(levels)))).astype(np.float64)
    return 1.0 - steps * (steps + 1) / (len(levels) * (len(levels) - 1))


def group_tables(panel: Panel, levels: Sequence[float], weights: np.ndarray) -> tuple[np.ndarray, int]:
    """Per group: items rated at least twice, their summed agreement, and shares of the levels summed over all items.

    [groups, 2 + levels], and the number of items rated at least twice. Items with one rating count in the shares only (Gwet 2014).
    """
    counts, group_of = item_counts(panel, levels)
    raters = counts.sum(axis=1)
    twice = raters >= 2
    together = (counts * (counts @ weights - 1.0)).sum(axis=1)
    agreed = ratio(together, raters * (raters - 1.0))
    parts = np.concatenate([twice[:, None], np.where(twice, agreed, 0.0)[:, None], counts / np.maximum(raters, 1)[:, None]], axis=1)
    return add_up(parts, group_of), int(twice.sum())


def ac(tables: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The coefficient of summed tables [b, 2 + levels] from :func:`group_tables`: [b]; NaN where no item was rated twice."""
    levels = weights.shape[0]
    observed = ratio(tables[:, 1], tables[:, 0])
    shares = tables[:, 2:] / np.maximum(tables[:, 2:].sum(axis=1, keepdims=True), 1e-12)
    by_chance = weights.sum() / (levels * (levels - 1)) * (shares * (1.0 - shares)).sum(axis=1)
    return ratio(observed - by_chance, 1.0 - by_chance)
