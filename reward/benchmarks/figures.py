"""A figure of a benchmark: a value with its 95 % interval. Intervals resample whole sources: items of one source are not independent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from reward.metrics import clustered_interval


@dataclass(frozen=True)
class Figure:
    """n: the items that it is an average over."""

    value: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}]"


@dataclass(frozen=True)
class Bootstrap:
    """How intervals are made."""

    resamples: int = 1000
    seed: int = 0

    def mean(self, values: np.ndarray, source: Sequence[str]) -> Figure:
        """Mean of [item] values that are not NaN."""
        values = np.asarray(values, dtype=np.float64)
        known = ~np.isnan(values)
        if not known.any():
            return Figure(float("nan"), float("nan"), float("nan"), 0)
        found = clustered_interval(values[known], np.asarray(source)[known], resamples=self.resamples, seed=self.seed)
        return Figure(found.estimate, found.low, found.high, int(known.sum()))

    def of(self, statistic: Callable[[np.ndarray], float], source: Sequence[str]) -> Figure:
        """A statistic of items, given as their numbers [item] with repetitions."""
        numbers = np.arange(len(source), dtype=np.float64)
        found = clustered_interval(
            numbers,
            np.asarray(source),
            statistic=lambda drawn: statistic(drawn.astype(np.int64)),
            resamples=self.resamples,
            seed=self.seed,
        )
        return Figure(found.estimate, found.low, found.high, len(source))


DEFAULT = Bootstrap()
