"""Intraclass correlations of raters, in the six forms of Shrout and Fleiss.

In: a panel of ratings. Out, each with its interval over groups: ``icc_1_1`` and ``icc_1_k`` (one-way: any raters, at least two per item);
``icc_2_1``, ``icc_2_k`` (two-way, raters random: absolute agreement) and ``icc_3_1``, ``icc_3_k`` (two-way, raters fixed: consistency),
which use only the items that every rater of the panel rated. The first number is the form; the second is 1 for one rating, k for the mean
of k.

Sources: P. E. Shrout, J. L. Fleiss, Intraclass correlations: uses in assessing rater reliability, Psychological Bulletin 86, 1979; the
number of ratings per item of an unbalanced one-way design: G. W. Snedecor, W. G. Cochran, Statistical Methods, 1980, section 13.4.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stages.annotate.agreement.alpha import NO_OVERLAP, NO_VARIATION, Panel
from stages.annotate.agreement.bootstrap import add_up, estimate, ratio, resampled_sums

ONE_WAY = ("icc_1_1", "icc_1_k")
TWO_WAY = ("icc_2_1", "icc_2_k", "icc_3_1", "icc_3_k")
NOT_CROSSED = "no two items were rated by all raters"


def correlations(panel: Panel, *, seed: int) -> dict[str, Any]:
    """All six forms of one dimension as ``{value, low, high, n}``, n being the number of items used."""
    one, items = one_way_tables(panel)
    two, crossed = two_way_tables(panel)
    result = {}
    sums = resampled_sums(one, seed=seed)
    for i, name in enumerate(ONE_WAY):
        undefined = NO_VARIATION if items else NO_OVERLAP
        result[name] = estimate(one, sums, lambda t, i=i: one_way(t)[:, i], n=items, undefined=undefined).to_json()
    sums = resampled_sums(two, seed=seed)
    for i, name in enumerate(TWO_WAY):
        undefined = NO_VARIATION if crossed > 1 else NOT_CROSSED
        result[name] = estimate(two, sums, lambda t, i=i: two_way(t)[:, i], n=crossed, undefined=undefined).to_json()
    return result


def one_way_tables(panel: Panel) -> tuple[np.ndarray, int]:
    """Per group, over items rated at least twice: items, ratings m, m squared, sum x, sum x squared, (item sum)^2 / m: [groups, 6]."""
    value = _centred(panel.value)
    items, first, item = np.unique(panel.item, return_index=True, return_inverse=True)
    count = np.bincount(item, minlength=len(items)).astype(np.float64)
    total, squares = np.bincount(item, value, len(items)), np.bincount(item, value**2, len(items))
    parts = np.stack([np.ones_like(count), count, count**2, total, squares, total**2 / count], axis=1)
    kept = count >= 2
    return add_up(parts[kept], panel.group[first][kept]), int(kept.sum())


def one_way(tables: np.ndarray) -> np.ndarray:
    """ICC(1,1) and ICC(1,k) of summed tables [b, 6] from :func:`one_way_tables`: [b, 2]."""
    items, ratings, ratings_squared, total, squares, of_items = tables.T
    between = ratio(_zero_if_rounding(of_items - ratio(total**2, ratings), squares), items - 1)
    within = ratio(_zero_if_rounding(squares - of_items, squares), ratings - items)
    k = ratio(ratings - ratio(ratings_squared, ratings), items - 1)
    parts = between + (k - 1) * within, between
    return np.stack([ratio(between - within, _zero_if_rounding(part, squares)) for part in parts], axis=1)


def two_way_tables(panel: Panel) -> tuple[np.ndarray, int]:
    """Per group, over items that all k raters rated: items, sum x squared, (item sum) squared / k, sum x of each rater: [groups, 3 + k]."""
    value = _centred(panel.value)
    items, first, item = np.unique(panel.item, return_index=True, return_inverse=True)
    raters, rater = np.unique(panel.rater, return_inverse=True)
    k = len(raters)
    scores = np.full((len(items), k), np.nan)
    scores[item, rater] = value
    kept = ~np.isnan(scores).any(axis=1) if k > 1 else np.zeros(len(items), dtype=bool)
    scores = scores[kept]
    parts = np.concatenate(
        [np.ones((len(scores), 1)), (scores**2).sum(1, keepdims=True), scores.sum(1, keepdims=True) ** 2 / max(k, 1), scores], axis=1
    )
    return add_up(parts, panel.group[first][kept]), int(kept.sum())


def two_way(tables: np.ndarray) -> np.ndarray:
    """ICC(2,1), ICC(2,k), ICC(3,1) and ICC(3,k) of summed tables [b, 3 + k] from :func:`two_way_tables`: [b, 4]."""
    items, squares, of_items, of_raters = tables[:, 0], tables[:, 1], tables[:, 2], tables[:, 3:]
    k = of_raters.shape[1]
    mean = ratio(of_raters.sum(axis=1) ** 2, items * k)
    of_judges = _zero_if_rounding(ratio((of_raters**2).sum(axis=1), items) - mean, squares)
    between = ratio(_zero_if_rounding(of_items - mean, squares), items - 1)
    judges = ratio(of_judges, np.full(len(tables), k - 1.0))
    error = ratio(_zero_if_rounding(squares - of_items - of_judges, squares), (items - 1) * (k - 1))
    judge = ratio(judges - error, items)
    parts = between + (k - 1) * error + k * judge, between + judge, between + (k - 1) * error, between
    return np.stack([ratio(between - error, _zero_if_rounding(part, squares)) for part in parts], axis=1)


def _zero_if_rounding(part: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """Zero for a sum of squares that differs from it only by rounding, so that a division by it is undefined."""
    return np.where(np.abs(part) <= 1e-9 * squares, 0.0, part)


def _centred(value: np.ndarray) -> np.ndarray:
    """Scores minus their mean: no coefficient changes, and sums of squares keep their digits."""
    return value - (value.mean() if len(value) else 0.0)
