"""An interval of alpha for other raters from the same population, not only for other groups.

The intervals of :mod:`stages.annotate.agreement.alpha` resample groups and keep the raters, so they hold for these raters. Here raters
and groups are resampled independently, and a pair of ratings weighs (times its group was drawn) x (times each of its two raters was
drawn): the pigeonhole bootstrap (A. B. Owen, The pigeonhole bootstrap, Annals of Applied Statistics 1, 2007). A rater who is drawn twice
is not compared with himself. The weight 1 / (m - 1) of a pair among the m ratings of an item stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reward.evaluation.estimate import Estimate
from stages.annotate.agreement.alpha import NO_OVERLAP, NO_VARIATION, Panel, alpha
from stages.annotate.agreement.bootstrap import RESAMPLES, estimate

LEAST_RATERS = 5
"""With fewer raters too many resamples have one rater only, and say nothing about others."""

_CELLS = 1 << 22  # weights in memory at a time


def alpha_ordinal(panel: Panel, levels: Sequence[float], *, seed: int, resamples: int = RESAMPLES) -> Estimate:
    """Krippendorff's ordinal alpha with its 95 % interval over raters and groups; without a value below 5 raters who share items."""
    group, first, second, tables = pair_tables(panel, levels)
    if not len(tables):
        return Estimate(np.nan, n=0, note=NO_OVERLAP)
    raters, codes = np.unique(np.stack([first, second]), return_inverse=True)
    if len(raters) < LEAST_RATERS:
        return Estimate(np.nan, n=len(raters), note=f"fewer than {LEAST_RATERS} raters")
    a, b = codes.reshape(2, -1)
    groups, g = np.unique(group, return_inverse=True)
    rng = np.random.default_rng(seed)
    flat = tables.reshape(len(tables), -1)
    sums = np.zeros((resamples, flat.shape[1]))
    block = max(1, _CELLS // len(tables))
    for begin in range(0, resamples, block):
        rows = sums[begin : begin + block]
        of_rater = rng.multinomial(len(raters), np.full(len(raters), 1 / len(raters)), size=len(rows))  # [rows, raters]
        of_group = rng.multinomial(len(groups), np.full(len(groups), 1 / len(groups)), size=len(rows))  # [rows, groups]
        rows[:] = (of_group[:, g] * of_rater[:, a] * of_rater[:, b]) @ flat
    numbers = np.asarray(levels, dtype=np.float64)
    sums = sums.reshape(resamples, *tables.shape[1:])
    return estimate(tables, sums, lambda t: alpha(t, numbers, "ordinal"), n=len(raters), undefined=NO_VARIATION)


def pair_tables(panel: Panel, levels: Sequence[float]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Coincidences of each pair of raters in each group: group [p], the two raters [p], [p]; tables [p, levels, levels].

    Their sum is the coincidence table of :func:`stages.annotate.agreement.alpha.rater_tables`.
    """
    own, other = pairs_within_items(panel)
    _, item, count = np.unique(panel.item, return_inverse=True, return_counts=True)
    low, high = np.minimum(panel.rater[own], panel.rater[other]), np.maximum(panel.rater[own], panel.rater[other])
    keys, place = np.unique(np.stack([panel.group[own], low, high]), axis=1, return_inverse=True)
    level = np.searchsorted(np.asarray(levels), panel.value)
    tables = np.zeros((keys.shape[1], len(levels), len(levels)))
    np.add.at(tables, (place.ravel(), level[own], level[other]), 1 / (count[item[own]] - 1))
    return keys[0], keys[1], keys[2], tables


def pairs_within_items(panel: Panel) -> tuple[np.ndarray, np.ndarray]:
    """Row indices of all ordered pairs of ratings of one item by two raters: (own [pairs], other [pairs])."""
    order = np.lexsort((panel.rater, panel.item))
    item = panel.item[order]
    first, second = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    # Rows are sorted by item, so the pairs of an item are its rows at distance 1, 2, ...; no distance with a pair means no larger one has.
    for apart in range(1, len(item)):
        same = np.flatnonzero(item[apart:] == item[:-apart])
        if not len(same):
            break
        first.append(same)
        second.append(same + apart)
    a, b = order[np.concatenate(first)], order[np.concatenate(second)]
    return np.concatenate([a, b]), np.concatenate([b, a])
