"""A figure of a benchmark: a value with its 95 % interval. Intervals resample whole sources: items of one source are not independent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from reward.evaluation.metrics import clustered_interval


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
        return self.of_several(lambda drawn: {"value": statistic(drawn)}, source)["value"]

    def of_several(self, statistics: Callable[[np.ndarray], Mapping[str, float]], source: Sequence[str]) -> dict[str, Figure]:
        """As `of`, for several statistics that share their work: it is done once per resample."""
        numbers, known = np.arange(len(source), dtype=np.float64), {}

        def statistic(drawn: np.ndarray, name: str) -> float:
            key = drawn.tobytes()  # the resamples are those of the seed, so every name asks for the same
            if key not in known:
                known[key] = statistics(drawn.astype(np.int64))
            return known[key][name]

        figures = {}
        for name in statistics(numbers.astype(np.int64)):
            found = clustered_interval(
                numbers, np.asarray(source), statistic=partial(statistic, name=name), resamples=self.resamples, seed=self.seed
            )
            figures[name] = Figure(found.estimate, found.low, found.high, len(source))
        return figures


DEFAULT = Bootstrap()
