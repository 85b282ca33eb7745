"""95 % intervals by resampling whole sources: edits of one source are not independent.

Percentile bootstrap (Efron and Tibshirani 1993, chapter 13). A resample draws as many sources as there are, with replacement, and takes
every item of each drawn source. Arrays are float64 numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from reward.evaluation.estimate import Estimate

Array = np.ndarray
QUANTILES = (0.025, 0.975)


def percentile_interval(value: float, resampled: Array) -> Estimate:
    """The value with the middle 95 % of its resampled values [resample].

    Resamples in which the statistic is not defined (NaN) are left out; where it is in none, the interval is the value itself.
    """
    if np.isnan(resampled).all():
        return Estimate(value, value, value)
    low, high = np.nanquantile(resampled, QUANTILES)
    return Estimate(value, float(low), float(high))


@dataclass(frozen=True)
class SourceDraws:
    """Resamples of whole sources. Statistics that share them can be subtracted resample by resample.

    cluster [item]: number of the item's source; times [resample, source]: how often a resample contains a source.
    """

    cluster: Array
    times: Array

    @classmethod
    def of(cls, source: Sequence[Any] | Array, *, resamples: int, seed: int) -> SourceDraws:
        """As many sources as there are, drawn with replacement. source: [item], at least one."""
        names, cluster = np.unique(source, return_inverse=True)
        draws = np.random.default_rng(seed).integers(len(names), size=(resamples, len(names)))
        # One bincount for all resamples: resample r counts its sources in the range [r * sources, (r + 1) * sources).
        numbered = draws + len(names) * np.arange(resamples)[:, None]
        times = np.bincount(numbered.ravel(), minlength=resamples * len(names)).reshape(resamples, len(names))
        return cls(cluster, times.astype(np.float64))

    def totals(self, values: Array) -> Array:
        """Sums over the items of each resample: [item, column] -> [resample, column]."""
        # Sums per source first: a resample is then a weighted sum of sources, and needs no second look at the items.
        sums = np.zeros((self.times.shape[1], values.shape[1]))
        np.add.at(sums, self.cluster, values)
        return self.times @ sums

    def means(self, values: Array, weights: Array) -> Array:
        """Weighted means over the items of each resample: [item, column] twice -> [resample, column]; NaN where all weights are 0."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.totals(values * weights) / self.totals(weights)

    def mean_intervals(self, values: Array, weights: Array) -> list[Estimate]:
        """Intervals of weighted means: [item, column] twice -> per column; every column has a weight above 0."""
        means = (values * weights).sum(0) / weights.sum(0)
        return [percentile_interval(float(mean), found) for mean, found in zip(means, self.means(values, weights).T, strict=True)]


def clustered_interval(values: Array, source: Array, *, resamples: int = 2000, seed: int = 0) -> Estimate:
    """Mean of per-item values [item]; NaN values are left out. Raises ValueError where all are."""
    kept = ~np.isnan(values)
    values, source = values[kept], source[kept]
    if len(values) == 0:
        raise ValueError("no values to put an interval around; every pair is a tie or unlabelled")
    draws = SourceDraws.of(source, resamples=resamples, seed=seed)
    return percentile_interval(float(values.mean()), draws.means(values[:, None], np.ones((len(values), 1)))[:, 0])


@dataclass(frozen=True)
class Bootstrap:
    """How a benchmark's intervals are made. Its estimates know how many items they rest on."""

    resamples: int = 1000
    seed: int = 0

    def mean(self, values: Array, source: Sequence[str]) -> Estimate:
        """Mean of the [item] values that are not NaN; not defined where all are."""
        values = np.asarray(values, dtype=np.float64)
        n = int((~np.isnan(values)).sum())
        if not n:
            return Estimate(float("nan"), n=0)
        return replace(clustered_interval(values, np.asarray(source), resamples=self.resamples, seed=self.seed), n=n)

    def of(self, statistic: Callable[[Array], float], source: Sequence[str]) -> Estimate:
        """A statistic of items, given as their indices [item] with repetitions."""
        return self.of_several(lambda drawn: {"value": statistic(drawn)}, source)["value"]

    def of_several(self, statistics: Callable[[Array], Mapping[str, float]], source: Sequence[str]) -> dict[str, Estimate]:
        """Several statistics of items on the same resamples; see `of`."""
        draws = SourceDraws.of(source, resamples=self.resamples, seed=self.seed)
        members = [np.flatnonzero(draws.cluster == number) for number in range(draws.times.shape[1])]
        drawn = (np.concatenate([np.tile(members[n], int(count)) for n, count in enumerate(row) if count]) for row in draws.times)
        resampled = [statistics(indices) for indices in drawn]
        return {
            name: replace(percentile_interval(value, np.array([found[name] for found in resampled])), n=len(source))
            for name, value in statistics(np.arange(len(source))).items()
        }


DEFAULT = Bootstrap()
