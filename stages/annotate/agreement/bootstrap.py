"""Bootstrap intervals over groups. Whole groups are resampled, because the ratings within a group are not independent.

In: one table of sums per group. Every statistic is a function of the sum of these tables over groups, so a resample is a weighted sum of
tables and does not read the ratings again. Out: the statistic with its 95 % percentile interval, deterministic for a seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from reward.evaluation.bootstrap import percentile_interval
from reward.evaluation.estimate import DECIMALS, Estimate

RESAMPLES = 1000
DIGITS = DECIMALS

_DRAWS = 1 << 20  # groups drawn in one pass; changing it changes the draws of a seed

Statistic = Callable[[np.ndarray], np.ndarray]
"""From summed tables [b, ...] to values [b, ...]; NaN where the statistic is not defined."""


def resampled_sums(tables: np.ndarray, *, seed: int, resamples: int = RESAMPLES) -> np.ndarray:
    """Sums of ``tables`` [groups, ...] over ``resamples`` draws of as many groups with replacement: [resamples, ...]."""
    groups = len(tables)
    flat = tables.reshape(groups, math.prod(tables.shape[1:])).astype(np.float64)
    sums = np.zeros((resamples, flat.shape[1]))
    rng = np.random.default_rng(seed)
    block = max(1, _DRAWS // max(1, groups))
    for first in range(0, resamples if groups else 0, block):
        rows = sums[first : first + block]
        # Group indices [rows, groups], with an offset per row so that one bincount counts every group in every row; counts @ tables sums.
        drawn = rng.integers(0, groups, size=(len(rows), groups)) + groups * np.arange(len(rows))[:, None]
        rows[:] = np.bincount(drawn.ravel(), minlength=rows.shape[0] * groups).reshape(-1, groups) @ flat
    return sums.reshape(resamples, *tables.shape[1:])


def estimate(tables: np.ndarray, sums: np.ndarray, statistic: Statistic, *, n: int, undefined: str) -> Estimate:
    """The statistic of all groups with the interval over ``sums`` from :func:`resampled_sums`.

    ``undefined`` is the note where the statistic has no value; resamples in which it has none do not count.
    """
    value = float(statistic(tables.sum(axis=0, keepdims=True, dtype=np.float64))[0])
    if np.isnan(value):
        return Estimate(value, n=n, note=undefined)
    found = percentile_interval(value, statistic(sums))
    return replace(found, n=n).rounded(DIGITS)


def add_up(tables: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Tables of items [items, ...] added up within each group (``group``: of each item, [items]): [groups, ...], sorted by group."""
    groups, row = np.unique(group, return_inverse=True)
    sums = np.zeros((len(groups), *tables.shape[1:]))
    np.add.at(sums, row, tables)
    return sums


def share(parts: np.ndarray) -> np.ndarray:
    """Statistic of tables [..., 2] that hold (hits, trials): their ratio."""
    return ratio(parts[..., 0], parts[..., 1])


def ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """part / whole, NaN where whole is 0."""
    return np.divide(part, whole, out=np.full(np.shape(whole), np.nan), where=np.asarray(whole) != 0)
