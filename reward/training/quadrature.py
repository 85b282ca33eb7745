"""Expectations of the sigmoid over a Gaussian margin z ~ N(m, s^2), which have no closed form.

In: m and s, any equal shapes, s >= 0. Out: the expectation in that shape and type, differentiable in both.
The trapezoidal rule on POINTS standard normal deviates between -REACH and REACH. For such smooth functions it needs fewer points than
Gauss-Hermite: against adaptive integration (scipy) of log E[sigmoid(z)] for |m| <= 10 it is within 4e-11 for s <= 5 and 2e-6 for
s <= 10, where 128 points of Gauss-Hermite are within 4e-6 and 2e-3. Its error grows with s only, as exp(-2 pi^2 / (s * spacing)).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from reward.model.comparison import POINTS, REACH


def log_expected_sigmoid(m: Tensor, s: Tensor) -> Tensor:
    """log E[sigmoid(z)]. Relative precision does not depend on m: points lie around the deviate that contributes most.

    With the deviate t + c, t standard normal, E[f(t + c) exp(-c t - c^2 / 2)] is the same for every c; sigmoid(m + s t) times the
    normal density is largest near c = -m / s, at least 0 and at most s.
    """
    deviates, log_weights = _rule(m)
    with torch.no_grad():
        centre = torch.minimum((-m).clamp(min=0).div(s).nan_to_num(0.0), s)[..., None]  # [..., 1]
    z = m[..., None] + s[..., None] * (deviates + centre)  # [..., point]
    return torch.logsumexp(log_weights - centre * deviates - centre.square() / 2 + F.logsigmoid(z), dim=-1)


def expected_log_sigmoid(m: Tensor, s: Tensor) -> Tensor:
    """E[log sigmoid(z)], always below log E[sigmoid(z)] (Jensen)."""
    deviates, log_weights = _rule(m)
    return (F.logsigmoid(m[..., None] + s[..., None] * deviates) * log_weights.exp()).sum(-1)


def _rule(like: Tensor) -> tuple[Tensor, Tensor]:
    """Deviates and the logarithms of their weights, which add up to one: [point] twice."""
    deviates = torch.linspace(-REACH, REACH, POINTS, dtype=like.dtype, device=like.device)
    return deviates, torch.log_softmax(-deviates.square() / 2, dim=0)
