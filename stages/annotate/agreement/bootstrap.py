"""Bootstrap intervals over groups. Whole groups are resampled, because the ratings within a group are not independent.

In: one table of sums per group. Every statistic is a function of the sum of these tables over groups, so a resample is a weighted sum of
tables and does not read the ratings again. Out: the statistic with its 95 % percentile interval, deterministic for a seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

RESAMPLES = 1000
DIGITS = 6
"""Values are rounded, so that published bytes do not depend on the summation order of a linear algebra library."""

_DRAWS = 1 << 20  # groups drawn in one pass; changing it changes the draws of a seed

Statistic = Callable[[np.ndarray], np.ndarray]
"""From summed tables [b, ...] to values [b, ...]; NaN where the statistic is not defined."""


@dataclass(frozen=True)
class Estimate:
    """A statistic and its 95 % interval. ``value`` is None where it is not defined, and ``note`` says why."""

    value: float | None
    low: float | None
    high: float | None
    n: int
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain values; an empty note is left out."""
        return {name: value for name, value in asdict(self).items() if name != "note" or value}

    def __str__(self) -> str:
        return self.note if self.value is None else f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


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
        return Estimate(None, None, None, n, undefined)
    values = statistic(sums)
    low, high = np.percentile(values[~np.isnan(values)], [2.5, 97.5]) if not np.isnan(values).all() else (value, value)
    return Estimate(round(value, DIGITS), round(float(low), DIGITS), round(float(high), DIGITS), n)


def add_up(tables: np.ndarray, group: np.ndarray, groups: int) -> np.ndarray:
    """Tables of items [items, ...] added up within each of ``groups`` groups (``group``: codes [items]): [groups, ...]."""
    sums = np.zeros((groups, *tables.shape[1:]))
    np.add.at(sums, group, tables)
    return sums


def share(parts: np.ndarray) -> np.ndarray:
    """Statistic of tables [..., 2] that hold (hits, trials): their ratio."""
    return ratio(parts[..., 0], parts[..., 1])


def ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """part / whole, NaN where whole is 0."""
    return np.divide(part, whole, out=np.full(np.shape(whole), np.nan), where=np.asarray(whole) != 0)
