"""Does confidence predict errors? Calibration error, and accuracy against confidence.

Over strict pairs only. The confidence of a prediction is the P of the order that it names. `rankings` orders pairs from most to least
confident in three ways, so that a reader sees what sigma adds: by P (margin and sigma), by the margin alone, by sigma alone. Which pairs
count as the most confident is decided once, on all pairs; intervals then resample sources.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from reward.evaluation.bootstrap import Array, SourceDraws, percentile_interval
from reward.evaluation.estimate import Estimate
from reward.evaluation.metrics import LabelledPairs, correctness

SHARES = tuple(share / 10 for share in range(1, 11))
"""Shares of most confident pairs at which a curve is drawn."""
BINS = 10
"""Equal bins of [0.5, 1] in which confidence is compared with accuracy."""


@dataclass(frozen=True)
class Bin:
    """Pairs of similar predicted probability: how many, their mean prediction, and how often it came true."""

    pairs: int
    predicted: float
    observed: Estimate


def binned(predicted: Array, came_true: Array, inside: Array, draws: SourceDraws) -> list[Bin]:
    """Bins of pairs; empty ones are left out. predicted, came_true: [pair]; inside: [pair, bin], 1 in the pair's bin, else 0."""
    inside = inside[:, inside.any(axis=0)]
    observed = draws.mean_intervals(came_true[:, None], inside)
    means = (predicted[:, None] * inside).sum(0) / inside.sum(0)
    return [Bin(int(count), float(mean), rate) for count, mean, rate in zip(inside.sum(0), means, observed, strict=True)]


def reliability(probability: Array, label: Array, source: Array, *, resamples: int = 2000, seed: int = 0) -> list[Bin]:
    """Confidence against accuracy of strict pairs, in ``BINS``; empty bins are left out. probability, label: [pair]."""
    confidence, right, source = _strict(probability, label, source)
    if len(right) == 0:
        return []
    draws = SourceDraws.of(source, resamples=resamples, seed=seed)
    return binned(confidence, right, _membership(confidence), draws)


@dataclass(frozen=True)
class CalibrationError:
    """How far confidence is from accuracy.

    error: mean |confidence - accuracy| over bins, weighted by pairs (ECE, Guo et al. 2017). noise: what a calibrated model would show
    with this many pairs and sources; an error that is not well above it says nothing, and its interval then lies above the truth, since
    resamples add noise inside the absolute value. overconfidence: mean confidence minus accuracy, which has no such bias; errors of
    opposite sign cancel in it.
    """

    error: Estimate
    noise: float
    overconfidence: Estimate


def calibration_error(probability: Array, label: Array, source: Array, *, resamples: int = 2000, seed: int = 0) -> CalibrationError | None:
    """Of strict pairs, in the bins of `reliability`; None without one. probability, label: [pair]."""
    confidence, right, source = _strict(probability, label, source)
    if len(right) == 0:
        return None
    draws = SourceDraws.of(source, resamples=resamples, seed=seed)
    gaps = (confidence - right)[:, None] * _membership(confidence)  # [pair, bin]
    sums, resampled = gaps.sum(0), draws.totals(gaps)  # [bin], [resample, bin]
    counts = draws.totals(np.ones((len(right), 1)))[:, 0]
    error = percentile_interval(float(np.abs(sums).sum() / len(right)), np.abs(resampled).sum(1) / counts)
    noise = float((np.abs(resampled - sums).sum(1) / len(right)).mean())
    return CalibrationError(error, noise, percentile_interval(float(sums.sum() / len(right)), resampled.sum(1) / counts))


@dataclass(frozen=True)
class CurvePoint:
    """Accuracy among the most confident share of strict pairs."""

    share: float
    accuracy: Estimate


@dataclass(frozen=True)
class Halves:
    """Accuracy of the more confident half of the strict pairs, of the rest, and the first minus the second."""

    confident: Estimate
    rest: Estimate
    difference: Estimate


@dataclass(frozen=True)
class Confidence:
    """Per ranking of `rankings`: the curve and the halves. added: difference between halves by P minus that by the margin alone."""

    curves: Mapping[str, Sequence[CurvePoint]]
    halves: Mapping[str, Halves]
    added: Estimate


def rankings(pairs: LabelledPairs) -> dict[str, Array]:
    """Three confidences [pair], larger is surer: the P of the named order, the size of the margin, and minus the variance of the margin."""
    return {
        "probability": np.maximum(pairs.probability, 1 - pairs.probability),
        "margin": np.abs(pairs.overall_margin),
        "sigma": -(np.square(pairs.sigma_a) + np.square(pairs.sigma_b)),
    }


def measure_confidence(pairs: LabelledPairs, *, resamples: int = 2000, seed: int = 0) -> Confidence:
    """Curves and halves of all rankings, on shared resamples. Raises ValueError for fewer than two strict pairs."""
    pairs = pairs.where(pairs.strict)
    if len(pairs.overall) < 2:
        raise ValueError(f"{len(pairs.overall)} strict pairs cannot be halved by confidence; give at least two")
    right = correctness(pairs.overall_margin, pairs.overall)
    draws = SourceDraws.of(pairs.source, resamples=resamples, seed=seed)
    curves, halves, differences = {}, {}, {}
    for name, confidence in rankings(pairs).items():
        inside = np.stack([most_confident(confidence, share) for share in SHARES], axis=1)  # [pair, share]
        points = draws.mean_intervals(right[:, None], inside)
        curves[name] = [CurvePoint(share, accuracy) for share, accuracy in zip(SHARES, points, strict=True)]
        halves[name], differences[name] = _halves(right, most_confident(confidence, 0.5), draws)
    added = halves["probability"].difference.value - halves["margin"].difference.value
    return Confidence(curves, halves, percentile_interval(added, differences["probability"] - differences["margin"]))


def most_confident(confidence: Array, share: float) -> Array:
    """[pair]: 1 for pairs among the most confident share, 0 for others. Pairs that are equally confident at the border share its weight."""
    ordered = np.sort(confidence)[::-1]
    wanted = share * len(ordered)
    border = ordered[min(int(np.ceil(wanted)) - 1, len(ordered) - 1)]
    above, equal = confidence > border, confidence == border
    return above + equal * (wanted - above.sum()) / equal.sum()


def _halves(right: Array, inside: Array, draws: SourceDraws) -> tuple[Halves, Array]:
    weights = np.stack([inside, 1 - inside], axis=1)  # [pair, half]
    confident, rest = draws.mean_intervals(right[:, None], weights)
    resampled = draws.means(right[:, None], weights)
    difference = resampled[:, 0] - resampled[:, 1]
    return Halves(confident, rest, percentile_interval(confident.value - rest.value, difference)), difference


def _strict(probability: Array, label: Array, source: Array) -> tuple[Array, Array, Array]:
    """Of strict pairs: P of the predicted order, whether that order is right (half for P = 0.5), and the source."""
    right = correctness(probability - 0.5, label)
    strict = ~np.isnan(right)
    return np.maximum(probability, 1 - probability)[strict], right[strict], source[strict]


def _membership(confidence: Array) -> Array:
    """[pair, bin]: 1 in the pair's bin of [0.5, 1], else 0; 1.0 is in the last bin."""
    place = np.clip(((confidence - 0.5) * 2 * BINS).astype(np.int64), 0, BINS - 1)
    return np.eye(BINS)[place]
