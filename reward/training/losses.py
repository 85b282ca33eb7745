"""What a reward model learns from (EditReward, section 3.2): the losses, each with its source, and how they become one number.

Each edit has, per dimension d, a score s_d ~ N(mu_d, sigma_d^2) (eq. 2), and an aggregate of them (eq. 3, `reward.model.aggregation`).
The losses of pairs take (mu_a, sigma_a, mu_b, sigma_b, target), all [pair] or any shape that broadcasts; target is the probability with
which a is preferred: 1, 0, or between; sigma > 0. z is s_a - s_b ~ N(mu_a - mu_b, sigma_a^2 + sigma_b^2). Only differences of mu
matter to them, so scores have no fixed zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from reward.config import Aggregation
from reward.model.aggregation import aggregate, aggregate_ratings
from reward.training.config import LossConfig
from reward.training.quadrature import expected_log_sigmoid, log_expected_sigmoid
from reward.training.targets import PairTargets, RatingTargets


def preference_log_probability(
    mu_a: Tensor, sigma_a: Tensor, mu_b: Tensor, sigma_b: Tensor, expectation: Literal["quadrature", "probit"] = "quadrature"
) -> Tensor:
    """log P(a > b) = log E[sigmoid(z)], the probability inside eq. 4.

    quadrature: to about ten digits (`reward.training.quadrature`). probit: E[sigmoid(z)] = sigmoid(m / sqrt(1 + pi s^2 / 8)) (MacKay
    1992), with m and s of z. Its P is within 0.01 of the integral for |m| <= 4.4 and any s, and for s <= 1.9 and any m; elsewhere within
    0.018 for s <= 10. The logarithm of a small P is worse: 0.17 off at m = -4, up to 1.8 at m = -10.
    """
    m, s = mu_a - mu_b, torch.hypot(sigma_a, sigma_b)
    if expectation == "probit":
        return F.logsigmoid(m / torch.sqrt(1 + math.pi / 8 * s.square()))
    return log_expected_sigmoid(m, s)


def uncertainty(
    mu_a: Tensor,
    sigma_a: Tensor,
    mu_b: Tensor,
    sigma_b: Tensor,
    target: Tensor,
    expectation: Literal["quadrature", "probit"] = "quadrature",
) -> Tensor:
    """-log E[sigmoid(z)] of the preferred order: eq. 4 as the paper writes it.

    A model of noise in the labels: sigma falls where the order of mu is right, rises where it is wrong, and stays where mu are equal.
    """
    a_wins = preference_log_probability(mu_a, sigma_a, mu_b, sigma_b, expectation)
    b_wins = preference_log_probability(mu_b, sigma_b, mu_a, sigma_a, expectation)
    return -(target * a_wins + (1 - target) * b_wins)


def uncertainty_released(mu_a: Tensor, sigma_a: Tensor, mu_b: Tensor, sigma_b: Tensor, target: Tensor) -> Tensor:
    """E[-log sigmoid(z)]: what the public code (and HPSv3's) computes in place of eq. 4, there from 1000 draws, here by quadrature.

    -log sigmoid is convex, so the expectation grows with sigma at every mu: sigma is only ever pushed down, most where mu are equal.
    """
    m = mu_a - mu_b
    a_wins = expected_log_sigmoid(m, torch.hypot(sigma_a, sigma_b))
    return (1 - target) * m - a_wins  # log sigmoid(-z) = log sigmoid(z) - z


def bradley_terry(mu_a: Tensor, sigma_a: Tensor, mu_b: Tensor, sigma_b: Tensor, target: Tensor) -> Tensor:
    """-log sigmoid(mu_a - mu_b) of the preferred order (Bradley and Terry 1952); sigma has no part in it."""
    m = mu_a - mu_b
    return (1 - target) * m - F.logsigmoid(m)


def bradley_terry_ties(mu_a: Tensor, sigma_a: Tensor, mu_b: Tensor, sigma_b: Tensor, target: Tensor, tie_constant: float = 5.0) -> Tensor:
    """-log P of one of three outcomes: a preferred (target 1), b preferred (0), tie (0.5); Bradley-Terry with ties, Rao and Kupper 1967.

    With k = tie_constant > 1 and m = mu_a - mu_b: P(a) = sigmoid(m - log k), P(b) = sigmoid(-m - log k), P(tie) = (k^2 - 1) P(a) P(b),
    which add up to one. The public code has the formula and k = 5, but never passes it a tie. sigma has no part in it.
    """
    m, threshold = mu_a - mu_b, math.log(tie_constant)
    a_wins, b_wins = F.logsigmoid(m - threshold), F.logsigmoid(-m - threshold)
    tie = a_wins + b_wins + math.log(tie_constant**2 - 1)
    return -torch.where(target == 0.5, tie, target * a_wins + (1 - target) * b_wins)


def regression(mu: Tensor, rating: Tensor) -> Tensor:
    """(mu - rating)^2 (eq. 5), elementwise; rating is centred. sigma has no part in it."""
    return (mu - rating).square()


@dataclass(frozen=True)
class RewardLoss:
    """total = aggregate_weight * aggregate + per_dimension_weight * mean of dimensions [dimension]."""

    total: Tensor
    aggregate: Tensor
    dimensions: Tensor


def reward_loss(
    mean: Tensor,
    sigma: Tensor,
    targets: PairTargets | RatingTargets,
    config: LossConfig,
    aggregation: Aggregation,
    counts: Tensor | None = None,
) -> RewardLoss:
    """The configured loss of the aggregate and of each dimension, each averaged over the pairs that have the label, or over rated rows.

    mean, sigma: [row, dimension]. targets: of the kind that the loss learns from, see `reward.training.targets.loss_targets`.
    counts: numbers of labels of the whole batch, [1 + dimension], where this is one worker's part; the parts add up to the mean.
    """
    mu, deviation = aggregate(mean, sigma, aggregation)
    means = torch.cat([mu[:, None], mean], dim=1)  # [row, 1 + dimension]
    sigmas = torch.cat([deviation[:, None], sigma], dim=1)
    if isinstance(targets, RatingTargets):
        assert config.kind == "regression", f"{config.kind} learns from pairs, not from ratings"
        centred = targets.ratings - config.regression_centre
        losses = regression(means, torch.cat([aggregate_ratings(centred, aggregation)[:, None], centred], dim=1))
    else:
        assert config.kind != "regression", "regression learns from ratings, not from pairs"
        a, b, labels = targets.a, targets.b, targets.labels
        losses = _of_pairs(config)(means[a], sigmas[a], means[b], sigmas[b], labels.nan_to_num(0.5))  # [pair, 1 + dimension]
        losses = torch.where(labels.isfinite(), losses, 0.0)
    terms = losses.sum(0) / (targets.counts() if counts is None else counts).clamp(min=1)
    total = config.aggregate_weight * terms[0] + config.per_dimension_weight * terms[1:].mean()
    return RewardLoss(total, terms[0], terms[1:])


def _of_pairs(config: LossConfig) -> Callable[..., Tensor]:
    return {
        "uncertainty": partial(uncertainty, expectation=config.expectation),
        "uncertainty_released": uncertainty_released,
        "bradley_terry": bradley_terry,
        "bradley_terry_ties": partial(bradley_terry_ties, tie_constant=config.tie_constant),
    }[config.kind]
