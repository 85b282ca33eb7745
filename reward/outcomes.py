"""Three outcomes of a comparison: a better, equal, b better. How well they are predicted where people could call two edits equal.

P of the outcomes is `reward.comparison`'s, with a threshold that was fitted on other groups than those measured here. The predicted outcome is
the most likely one. Ties are overall ties of the ratings, each pair once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reward.comparison import preference_probability
from reward.confidence import Bin
from reward.metrics import Array, Interval, LabelledPairs, SourceDraws

FLOOR = 1e-12
"""Smallest probability in a logarithm: 1 - P(a) - P(b) loses all digits below it."""


def outcome_probabilities(margin: Array, sigma_a: Array, sigma_b: Array, threshold: float) -> Array:
    """[pair, 3]: P(a better), P(tie), P(b better), for [pair] margins mu_a - mu_b and sigmas."""
    forward = preference_probability(margin, sigma_a, sigma_b, threshold=threshold)
    backward = preference_probability(-margin, sigma_b, sigma_a, threshold=threshold)
    return np.stack([forward, np.maximum(0.0, 1 - forward - backward), backward], axis=1)


def outcomes(label: Array) -> Array:
    """int [pair]: column of `outcome_probabilities` that came true; label is P(a preferred), NaN or 0.5 for a tie."""
    return np.where(np.isnan(label) | (label == 0.5), 1, np.where(label > 0.5, 0, 2))


def log_likelihood(probabilities: Array, outcome: Array) -> Array:
    """[pair]: log of the probability that the true outcome was given."""
    return np.log(np.maximum(probabilities[np.arange(len(outcome)), outcome], FLOOR))


@dataclass(frozen=True)
class ThreeWay:
    """All pairs, ties included.

    accuracy: of the most likely outcome. never_tie: of the order alone, which is wrong on every tie. tie_share: share of ties, the accuracy
    of always naming a tie. log_likelihood: mean log P of the true outcome; uninformed: of a constant prediction that knows the share of ties
    and nothing else. ties: P(tie) against how often people called the pair equal, in bins of about equally many pairs.
    """

    threshold: float
    pairs: int
    accuracy: Interval
    never_tie: Interval
    tie_share: Interval
    log_likelihood: Interval
    uninformed: float
    ties: list[Bin]


def measure_three_way(pairs: LabelledPairs, *, threshold: float, bins: int = 5, resamples: int = 2000, seed: int = 0) -> ThreeWay:
    """Everything about three outcomes; pairs are of groups that the threshold was not fitted on, at least one."""
    probabilities = outcome_probabilities(pairs.overall_margin, pairs.sigma_a, pairs.sigma_b, threshold)
    outcome = outcomes(pairs.overall)
    tied = (outcome == 1).astype(np.float64)
    ordered = (outcome == outcomes(np.sign(pairs.overall_margin) / 2 + 0.5)) * (1 - tied)
    right = (outcome == probabilities.argmax(1)).astype(np.float64)
    columns = np.stack([right, ordered, tied, log_likelihood(probabilities, outcome)], axis=1)
    draws = SourceDraws.of(pairs.source, resamples=resamples, seed=seed)
    accuracy, never_tie, tie_share, likelihood = draws.mean_intervals(columns, np.ones_like(columns))
    share = tie_share.estimate
    constant = np.tile([(1 - share) / 2, share, (1 - share) / 2], (len(outcome), 1))
    return ThreeWay(
        threshold=threshold,
        pairs=len(outcome),
        accuracy=accuracy,
        never_tie=never_tie,
        tie_share=tie_share,
        log_likelihood=likelihood,
        uninformed=float(log_likelihood(constant, outcome).mean()),
        ties=_tie_bins(probabilities[:, 1], tied, draws, bins),
    )


def _tie_bins(predicted: Array, tied: Array, draws: SourceDraws, bins: int) -> list[Bin]:
    """From the least to the most likely ties; equal predictions are never split."""
    edges = np.unique(np.quantile(predicted, np.arange(1, bins) / bins))
    inside = np.eye(len(edges) + 1)[np.searchsorted(edges, predicted, side="left")]
    inside = inside[:, inside.any(axis=0)]
    observed = draws.mean_intervals(tied[:, None], inside)
    means = (predicted[:, None] * inside).sum(0) / inside.sum(0)
    return [Bin(int(count), float(mean), rate) for count, mean, rate in zip(inside.sum(0), means, observed, strict=True)]
