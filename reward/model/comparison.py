"""From two Gaussian scores to the probability that one edit is better (EditReward, eq. 4), or that people would call them equal.

    P(a better) = E[sigmoid(z - t)],  P(b better) = E[sigmoid(-z - t)],  P(tie) = the rest;  z ~ N(mu_a - mu_b, sigma_a^2 + sigma_b^2)

With threshold t = 0 there are no ties. A threshold is fitted on held-out ratings (Rao and Kupper 1967, on top of the scores).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

POINTS = 97
REACH = 7.0
"""The trapezoidal rule on POINTS standard normal deviates between -REACH and REACH, here and in `reward.training.quadrature`."""
NODES = np.linspace(-REACH, REACH, POINTS)
WEIGHTS = np.exp(-np.square(NODES) / 2) / np.exp(-np.square(NODES) / 2).sum()
"""E[f(eps)] = sum of WEIGHTS * f(NODES), eps standard normal.
P is within 1e-11 for sigmas of the margin up to 5, 1e-6 up to 10 and 3e-4 up to 20."""


def preference_probability(margin: np.ndarray, sigma_a: np.ndarray, sigma_b: np.ndarray, *, threshold: float = 0.0) -> np.ndarray:
    """P(a better) for margins mu_a - mu_b [...] and sigmas [...]."""
    sigma = np.sqrt(np.square(sigma_a) + np.square(sigma_b))
    return expit(np.asarray(margin)[..., None] - threshold + sigma[..., None] * NODES) @ WEIGHTS


@dataclass(frozen=True)
class OutcomeProbabilities:
    """Probabilities that add up to one."""

    a_better: float
    tie: float
    b_better: float


def outcome_probabilities(margin: np.ndarray, sigma_a: np.ndarray, sigma_b: np.ndarray, *, threshold: float) -> np.ndarray:
    """[..., 3]: P(a better), P(tie), P(b better) for margins [...] and sigmas [...]."""
    forward = preference_probability(margin, sigma_a, sigma_b, threshold=threshold)
    backward = preference_probability(-np.asarray(margin), sigma_b, sigma_a, threshold=threshold)
    return np.stack([forward, np.maximum(0.0, 1 - forward - backward), backward], axis=-1)


def compare(margin: float, sigma_a: float, sigma_b: float, *, threshold: float) -> OutcomeProbabilities:
    """All three outcomes for one pair."""
    values = (np.array(value, dtype=np.float64) for value in (margin, sigma_a, sigma_b))
    return OutcomeProbabilities(*outcome_probabilities(*values, threshold=threshold).tolist())
