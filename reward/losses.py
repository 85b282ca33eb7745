"""The ranking loss, as in the paper (EditReward, section 3.2).

Each candidate has, per dimension d, a score s_d ~ N(mu_d, sigma_d^2) (eq. 2). Aggregated scores (eq. 3) of two candidates give the
probability that a is preferred, P(a > b) = E[sigmoid(s_a - s_b)]; the loss is -log P of the label (eq. 4). A label is a target
probability: 1, 0, or between. Shapes: [pair] unless stated; dimension last.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from reward.config import LossConfig


def aggregate_mean(mean: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor]:
    """Balanced average (eq. 3) of independent Gaussians: [..., dimension] twice -> mu [...], sigma [...]."""
    count = mean.shape[-1]
    return mean.mean(-1), sigma.square().sum(-1).sqrt() / count


def preference_log_probability(mu_a: Tensor, sigma_a: Tensor, mu_b: Tensor, sigma_b: Tensor) -> Tensor:
    """log P(a > b) = log E[sigmoid(z)], z ~ N(mu_a - mu_b, sigma_a^2 + sigma_b^2).

    The probit approximation E[sigmoid(z)] = sigmoid(m / sqrt(1 + pi s^2 / 8)) (MacKay 1992) is within 0.02 of the integral.
    """
    variance = sigma_a.square() + sigma_b.square()
    return F.logsigmoid((mu_a - mu_b) / torch.sqrt(1 + math.pi / 8 * variance))


def uncertainty_ranking_loss(mu_a: Tensor, sigma_a: Tensor, mu_b: Tensor, sigma_b: Tensor, target: Tensor) -> Tensor:
    """-log P of the label (eq. 4), per pair; target is the probability with which a is preferred."""
    a_wins = preference_log_probability(mu_a, sigma_a, mu_b, sigma_b)
    b_wins = preference_log_probability(mu_b, sigma_b, mu_a, sigma_a)
    return -(target * a_wins + (1 - target) * b_wins)


@dataclass(frozen=True)
class PairTargets:
    """Pairs of rows and their labels; NaN where a pair has no label.

    a, b: int64 [pair], rows of the batch; overall: [pair]; dimensions: [pair, dimension]; each P(a preferred) or NaN.
    """

    a: Tensor
    b: Tensor
    overall: Tensor
    dimensions: Tensor

    def to(self, device: torch.device) -> PairTargets:
        """The same pairs on a device."""
        return PairTargets(*(getattr(self, name).to(device) for name in ("a", "b", "overall", "dimensions")))

    def counts(self) -> Tensor:
        """Labels in `overall` and in each of `dimensions`: [1 + dimension]."""
        labels = torch.cat([self.overall[:, None], self.dimensions], dim=1)
        return labels.isfinite().sum(0)


@dataclass(frozen=True)
class RankingLoss:
    """total = aggregate_weight * aggregate + per_dimension_weight * mean of dimensions [dimension]."""

    total: Tensor
    aggregate: Tensor
    dimensions: Tensor


def ranking_loss(mean: Tensor, sigma: Tensor, pairs: PairTargets, config: LossConfig, counts: Tensor | None = None) -> RankingLoss:
    """Aggregate and per-dimension terms, each averaged over the pairs that have the label.

    mean, sigma: [row, dimension]. counts: what to divide by, [1 + dimension], when this is one worker's part of a batch.
    """
    counts = (pairs.counts() if counts is None else counts).clamp(min=1)
    aggregate = _sum_of_labelled(*aggregate_mean(mean, sigma), pairs, pairs.overall) / counts[0]
    per_dimension = torch.stack(
        [_sum_of_labelled(mean[:, d], sigma[:, d], pairs, pairs.dimensions[:, d]) / counts[1 + d] for d in range(mean.shape[1])]
    )
    total = config.aggregate_weight * aggregate + config.per_dimension_weight * per_dimension.mean()
    return RankingLoss(total, aggregate, per_dimension)


def _sum_of_labelled(mu: Tensor, sigma: Tensor, pairs: PairTargets, target: Tensor) -> Tensor:
    labelled = target.isfinite()
    loss = uncertainty_ranking_loss(mu[pairs.a], sigma[pairs.a], mu[pairs.b], sigma[pairs.b], target.nan_to_num(0.5))
    return torch.where(labelled, loss, 0.0).sum()
