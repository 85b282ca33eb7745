"""How well scores agree with preferences: predictions beside labels, accuracy, who predicts what, intervals.

Names say which ties count how. A *strict* pair has a label that is not a tie; only strict pairs enter an accuracy. Two equal predicted
scores on a strict pair (`predicted_tie`) count half, as a coin would, or wrong. Every average is over pairs; intervals resample whole
sources, since pairs of one source are not independent. Arrays are float64 numpy, labels are P(a preferred) or NaN for a tie.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from reward.inputs.groups import RatedGroup
from reward.model.comparison import preference_probability

Array = np.ndarray


@dataclass(frozen=True)
class Prediction:
    """Scores of the candidates of one group: mean, sigma [candidate, dimension]; overall_mean, overall_sigma [candidate]."""

    mean: Array
    sigma: Array
    overall_mean: Array
    overall_sigma: Array


@dataclass(frozen=True)
class LabelledPairs:
    """Preferences beside predictions, each pair of candidates once.

    overall [pair], dimensions [pair, dimension]: labels. overall_margin [pair], margins [pair, dimension]: predicted score of a minus
    that of b. sigma_a, sigma_b [pair]: overall sigmas. group, source [pair]: number of the pair's group, and of its source.
    """

    overall: Array
    dimensions: Array
    overall_margin: Array
    margins: Array
    sigma_a: Array
    sigma_b: Array
    group: Array
    source: Array

    @cached_property
    def probability(self) -> Array:
        """[pair]: predicted P(a preferred), where ties are not possible."""
        return preference_probability(self.overall_margin, self.sigma_a, self.sigma_b)

    @property
    def strict(self) -> Array:
        """bool [pair]: whether the overall label is not a tie."""
        return ~np.isnan(self.overall)

    def where(self, kept: Array) -> LabelledPairs:
        """The pairs that a bool [pair] names."""
        fields = ("overall", "dimensions", "overall_margin", "margins", "sigma_a", "sigma_b", "group", "source")
        return LabelledPairs(*(getattr(self, name)[kept] for name in fields))


def labelled_pairs(groups: Sequence[RatedGroup], predictions: Sequence[Prediction]) -> LabelledPairs:
    """Join groups and their predictions, pair by pair. Rows made from an overall tie count as that tie: once, unlabelled overall."""
    sources = {source: number for number, source in enumerate(dict.fromkeys(group.source_id for group in groups))}
    rows: list[tuple] = []
    for number, (group, prediction) in enumerate(zip(groups, predictions, strict=True)):
        seen = set()
        for preference in group.preferences:
            a, b, tied = preference.a, preference.b, preference.origin != "plain"
            if (a, b) in seen:
                continue
            seen.add((a, b))
            rows.append(
                (
                    np.nan if tied or preference.overall is None else preference.overall,
                    [np.nan if target is None else target for target in preference.dimensions],
                    prediction.overall_mean[a] - prediction.overall_mean[b],
                    prediction.mean[a] - prediction.mean[b],
                    prediction.overall_sigma[a],
                    prediction.overall_sigma[b],
                    number,
                    sources[group.source_id],
                )
            )
    if not rows:
        raise ValueError("the groups have no preferences to compare with; build preferences from their ratings first")
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    return LabelledPairs(*(column.astype(np.float64) for column in columns[:6]), columns[6], columns[7])


def correctness(margin: Array, label: Array, predicted_tie: Literal["half", "wrong"] = "half") -> Array:
    """[pair]: 1 where the predicted order is the label's, 0 where not, NaN where the label is a tie."""
    agreement = np.sign(margin) * np.sign(label - 0.5)
    values = np.where(agreement > 0, 1.0, 0.0)
    if predicted_tie == "half":
        values = np.where(margin == 0, 0.5, values)
    return np.where(np.isnan(label) | (label == 0.5), np.nan, values)


def pair_accuracy(margin: Array, label: Array, predicted_tie: Literal["half", "wrong"] = "half") -> float:
    """Share of strict pairs in the right order; NaN when there is no strict pair."""
    values = correctness(margin, label, predicted_tie)
    strict = values[~np.isnan(values)]
    return float(strict.mean()) if len(strict) else float("nan")


def head_dimension_correctness(pairs: LabelledPairs) -> Array:
    """[pair, head, dimension]: `correctness` of each head on each dimension. A head that is identified does best in its own column."""
    return correctness(pairs.margins[:, :, None], pairs.dimensions[:, None, :])


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 % interval, unless said otherwise."""

    estimate: float
    low: float
    high: float


def percentile_interval(estimate: float, resampled: Array, confidence: float = 0.95) -> Interval:
    """The middle of the resampled estimates [resample]; NaN among them, from resamples that hold nothing to estimate, are left out."""
    low, high = np.nanquantile(resampled, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(estimate, float(low), float(high))


@dataclass(frozen=True)
class SourceDraws:
    """Bootstrap resamples of whole sources. Statistics that share them can be subtracted resample by resample.

    cluster [pair]: number of the pair's source; times [resample, source]: how often a resample holds a source.
    """

    cluster: Array
    times: Array

    @classmethod
    def of(cls, source: Array, *, resamples: int, seed: int) -> SourceDraws:
        """As many sources as there are, drawn with replacement. source: [pair], at least one."""
        names, cluster = np.unique(source, return_inverse=True)
        draws = np.random.default_rng(seed).integers(len(names), size=(resamples, len(names)))
        places = draws + len(names) * np.arange(resamples)[:, None]
        times = np.bincount(places.ravel(), minlength=resamples * len(names)).reshape(resamples, len(names))
        return cls(cluster, times.astype(np.float64))

    def totals(self, values: Array) -> Array:
        """Sums over the pairs of each resample: [pair, column] -> [resample, column]."""
        sums = np.zeros((self.times.shape[1], values.shape[1]))
        np.add.at(sums, self.cluster, values)
        return self.times @ sums

    def means(self, values: Array, weights: Array) -> Array:
        """Weighted means over the pairs of each resample: [pair, column] twice -> [resample, column]; NaN where all weights are 0."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.totals(values * weights) / self.totals(weights)

    def mean_intervals(self, values: Array, weights: Array) -> list[Interval]:
        """Intervals of weighted means: [pair, column] twice -> per column; every column has a weight above 0."""
        estimates = (values * weights).sum(0) / weights.sum(0)
        resampled = self.means(values, weights)
        return [percentile_interval(float(estimate), found) for estimate, found in zip(estimates, resampled.T, strict=True)]


def clustered_interval(
    values: Array,
    source: Array,
    *,
    statistic: Callable[[Array], float] | None = None,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """Bootstrap over sources of a statistic of per-pair values [pair]; the default is the mean. NaN values are left out."""
    kept = ~np.isnan(values)
    values, source = values[kept], source[kept]
    if len(values) == 0:
        raise ValueError("no values to put an interval around; every pair is a tie or unlabelled")
    draws = SourceDraws.of(source, resamples=resamples, seed=seed)
    if statistic is None:
        found = draws.means(values[:, None], np.ones((len(values), 1)))[:, 0]
        return percentile_interval(float(values.mean()), found, confidence)
    members = [np.flatnonzero(draws.cluster == number) for number in range(draws.times.shape[1])]
    drawn = (np.concatenate([np.tile(members[n], int(count)) for n, count in enumerate(row) if count]) for row in draws.times)
    return percentile_interval(float(statistic(values)), np.array([statistic(values[pairs]) for pairs in drawn]), confidence)
