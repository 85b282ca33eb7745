"""How well scores agree with preferences: accuracy, who predicts what, calibration, confidence, intervals.

Names say which ties count how. A *strict* pair has a label that is not a tie; only strict pairs enter an accuracy. Two equal predicted
scores on a strict pair (`predicted_tie`) count half, as a coin would, or wrong. Every average is over pairs; intervals resample whole
sources, since pairs of one source are not independent. Arrays are float64 numpy, labels are P(a preferred) or NaN where there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from reward.groups import RatedGroup
from reward.comparison import preference_probability

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
    """Preferences beside predictions.

    overall [pair], dimensions [pair, dimension]: labels. overall_margin [pair], margins [pair, dimension]: predicted
    score of a minus that of b. probability [pair]: predicted P(a preferred). source [pair]: number of the group's source.
    """

    overall: Array
    dimensions: Array
    overall_margin: Array
    margins: Array
    probability: Array
    source: Array


def labelled_pairs(groups: Sequence[RatedGroup], predictions: Sequence[Prediction]) -> LabelledPairs:
    """Join groups and their predictions, pair by pair. Rows made from an overall tie count as that tie: once, unlabelled overall."""
    sources = {source: number for number, source in enumerate(dict.fromkeys(group.source_id for group in groups))}
    rows: list[tuple] = []
    for group, prediction in zip(groups, predictions, strict=True):
        seen = set()
        for preference in group.preferences:
            a, b, tied = preference.a, preference.b, preference.origin != "plain"
            if (a, b) in seen:
                continue
            seen.add((a, b))
            margin = prediction.overall_mean[a] - prediction.overall_mean[b]
            rows.append(
                (
                    np.nan if tied or preference.overall is None else preference.overall,
                    [np.nan if target is None else target for target in preference.dimensions],
                    margin,
                    prediction.mean[a] - prediction.mean[b],
                    preference_probability(margin, prediction.overall_sigma[a], prediction.overall_sigma[b]),
                    sources[group.source_id],
                )
            )
    if not rows:
        raise ValueError("the groups have no preferences to compare with; build preferences from their ratings first")
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    return LabelledPairs(*(column.astype(np.float64) for column in columns[:5]), columns[5])


def correctness(margin: Array, label: Array, predicted_tie: Literal["half", "wrong"] = "half") -> Array:
    """[pair]: 1 where the predicted order is the label's, 0 where not, NaN where the label is a tie or missing."""
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


def head_dimension_table(pairs: LabelledPairs) -> Array:
    """[head, dimension]: accuracy of each head on each dimension's strict pairs. A head that is identified wins its own column."""
    count = pairs.dimensions.shape[1]
    return np.array([[pair_accuracy(pairs.margins[:, head], pairs.dimensions[:, d]) for d in range(count)] for head in range(count)])


@dataclass(frozen=True)
class CalibrationBin:
    """Strict pairs whose confidence, P of the predicted order, lies in [low, high)."""

    low: float
    high: float
    pairs: int
    confidence: float
    accuracy: float


def reliability(probability: Array, label: Array, bins: int = 10) -> list[CalibrationBin]:
    """Confidence against accuracy over strict pairs, in equal bins of [0.5, 1]; empty bins are left out."""
    confidence, right = _confidence(probability, label)
    edges = np.linspace(0.5, 1.0, bins + 1)
    place = np.clip(np.searchsorted(edges, confidence, side="right") - 1, 0, bins - 1)
    return [
        CalibrationBin(
            low=float(edges[index]),
            high=float(edges[index + 1]),
            pairs=int(inside.sum()),
            confidence=float(confidence[inside].mean()),
            accuracy=float(right[inside].mean()),
        )
        for index in range(bins)
        if (inside := place == index).any()
    ]


def expected_calibration_error(probability: Array, label: Array, bins: int = 10) -> float:
    """Mean |confidence - accuracy| over bins of strict pairs, weighted by pairs; NaN when there is none."""
    found = reliability(probability, label, bins)
    total = sum(entry.pairs for entry in found)
    if total == 0:
        return float("nan")
    return sum(entry.pairs * abs(entry.confidence - entry.accuracy) for entry in found) / total


def accuracy_by_confidence(probability: Array, label: Array) -> tuple[float, float]:
    """Accuracy of the most confident half of the strict pairs, and of the rest (ties in confidence: in the given order)."""
    confidence, right = _confidence(probability, label)
    order = np.argsort(-confidence, kind="stable")
    half = (len(order) + 1) // 2
    if half == len(order):
        raise ValueError(f"{len(order)} strict pairs cannot be halved by confidence; give at least two")
    return float(right[order[:half]].mean()), float(right[order[half:]].mean())


@dataclass(frozen=True)
class Interval:
    """An estimate with its bootstrap percentile interval."""

    estimate: float
    low: float
    high: float


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
    _, cluster = np.unique(source, return_inverse=True)
    clusters = int(cluster.max()) + 1
    draws = np.random.default_rng(seed).integers(clusters, size=(resamples, clusters))
    if statistic is None:
        sums, counts = np.bincount(cluster, weights=values), np.bincount(cluster)
        estimate = float(values.mean())
        found = sums[draws].sum(1) / counts[draws].sum(1)
    else:
        members = [np.flatnonzero(cluster == number) for number in range(clusters)]
        estimate = float(statistic(values))
        found = np.array([statistic(values[np.concatenate([members[number] for number in draw])]) for draw in draws])
    low, high = np.quantile(found, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(estimate, float(low), float(high))


def _confidence(probability: Array, label: Array) -> tuple[Array, Array]:
    """Over strict pairs: P of the predicted order, and whether that order is right (half for P = 0.5)."""
    right = correctness(probability - 0.5, label)
    strict = ~np.isnan(right)
    return np.maximum(probability, 1 - probability)[strict], right[strict]
