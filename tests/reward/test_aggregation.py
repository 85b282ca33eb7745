"""Aggregation of the dimensions: the public code's pooled values, Monte Carlo for the minimum, and what must hold for every rule."""

from __future__ import annotations

import math
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, tensor

from reward.config import Aggregation
from reward.model.aggregation import aggregate, aggregate_ratings

RULES: tuple[Aggregation, ...] = get_args(Aggregation)
rules = st.sampled_from(RULES)
gaussians = st.lists(st.tuples(st.floats(-5, 5), st.floats(0.01, 5)), min_size=1, max_size=4)


def columns(dimensions: list[tuple[float, float]]) -> tuple[Tensor, Tensor]:
    mean, sigma = tensor(dimensions, dtype=torch.float64).unbind(1)
    return mean, sigma


def drawn_minimum(mean: Tensor, sigma: Tensor, draws: int = 200_000) -> tuple[float, float]:
    noise = torch.randn(draws, len(mean), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values = (mean + sigma * noise).amin(-1)
    return float(values.mean()), float(values.std())


@pytest.mark.parametrize("case", ["case_a", "case_b"])
@pytest.mark.parametrize("rule", ["mean", "min", "sum"])
def test_the_public_codes_pooled_values(shared_data: Path, case: str, rule: str) -> None:
    arrays = np.load(shared_data / "parity" / case / "arrays.npz")
    name: Aggregation = next(found for found in RULES if found == f"reference_{rule}")
    for mode in ("1d", "mrope"):
        for side in "AB":
            heads = torch.stack([torch.from_numpy(arrays[f"head.{mode}.{side}.dim{d}"]).double() for d in (1, 2)], dim=-1)
            mu, sigma = aggregate(heads[:, 0], heads[:, 1].exp(), name)
            expected = arrays[f"pooled.{mode}.{side}.{rule}"]
            np.testing.assert_allclose(torch.stack([mu, sigma.log()], dim=1).numpy(), expected, atol=1e-6, rtol=0)


def test_the_sigma_of_an_average_is_not_the_geometric_mean() -> None:
    mean, sigma = tensor([[1.0, 4.0]]), tensor([[3.0, 4.0]])
    assert [value.tolist() for value in aggregate(mean, sigma, "mean")] == [[2.5], [2.5]]  # sqrt(9 + 16) / 2
    assert [value.tolist() for value in aggregate(mean, sigma, "sum")] == [[5.0], [5.0]]
    mu, geometric = aggregate(mean, sigma, "reference_mean")
    assert mu.tolist() == [2.5] and float(geometric) == pytest.approx(math.sqrt(12))


def test_reference_min_takes_the_sigma_of_another_dimension() -> None:
    mu, sigma = aggregate(tensor([0.0, 3.0]), tensor([2.0, 0.1]), "reference_min")
    assert (float(mu), float(sigma)) == (0.0, pytest.approx(0.1))
    mu, sigma = aggregate(tensor([0.0, 3.0]), tensor([2.0, 0.1]), "min")
    assert float(sigma) > 1.5


def test_the_minimum_of_two_equal_gaussians() -> None:
    mu, sigma = aggregate(tensor([0.0, 0.0]), tensor([1.0, 1.0]), "min")
    assert float(mu) == pytest.approx(-1 / math.sqrt(math.pi)) and float(sigma) == pytest.approx(math.sqrt(1 - 1 / math.pi))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.floats(-3, 3), st.floats(0.1, 3)), min_size=2, max_size=2))
def test_the_minimum_of_two_against_draws(dimensions: list[tuple[float, float]]) -> None:
    mean, sigma = columns(dimensions)
    mu, deviation = aggregate(mean, sigma, "min")
    drawn_mu, drawn_deviation = drawn_minimum(mean, sigma)
    noise = float(deviation) / math.sqrt(200_000)
    assert float(mu) == pytest.approx(drawn_mu, abs=6 * noise)
    assert float(deviation) == pytest.approx(drawn_deviation, abs=10 * noise)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.floats(-2, 2), st.floats(0.3, 2)), min_size=3, max_size=4))
def test_more_dimensions_are_folded_closely(dimensions: list[tuple[float, float]]) -> None:
    mean, sigma = columns(dimensions)
    mu, deviation = aggregate(mean, sigma, "min")
    drawn_mu, drawn_deviation = drawn_minimum(mean, sigma)
    assert float(mu) == pytest.approx(drawn_mu, abs=0.03 * drawn_deviation)
    assert float(deviation) == pytest.approx(drawn_deviation, rel=0.08)


@settings(deadline=None)
@given(gaussians, rules, st.floats(-50, 50))
def test_a_shift_of_all_means_shifts_the_aggregate(dimensions: list[tuple[float, float]], rule: Aggregation, shift: float) -> None:
    mean, sigma = columns(dimensions)
    mu, deviation = aggregate(mean, sigma, rule)
    moved, same = aggregate(mean + shift, sigma, rule)
    times = len(dimensions) if "sum" in rule else 1
    assert float(moved) == pytest.approx(float(mu) + times * shift, abs=1e-9)
    assert float(same) == pytest.approx(float(deviation), rel=1e-7)


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(0.01, 5)), min_size=1, max_size=4, unique_by=lambda pair: pair[1]), rules)
def test_the_order_of_the_dimensions_does_not_matter(dimensions: list[tuple[float, float]], rule: Aggregation) -> None:
    ours, theirs = aggregate(*columns(dimensions), rule), aggregate(*columns(dimensions[::-1]), rule)
    assert [float(v) for v in ours] == pytest.approx([float(v) for v in theirs], rel=1e-9, abs=1e-12)


@settings(deadline=None)
@given(st.floats(-5, 5), st.floats(0.01, 5), rules)
def test_one_dimension_is_its_own_aggregate(mean: float, sigma: float, rule: Aggregation) -> None:
    assert [float(v) for v in aggregate(*columns([(mean, sigma)]), rule)] == pytest.approx([mean, sigma])


@settings(deadline=None)
@given(gaussians)
def test_known_scores_are_the_limit_of_no_sigma(dimensions: list[tuple[float, float]]) -> None:
    mean, _ = columns(dimensions)
    for rule in RULES:
        mu, _ = aggregate(mean, torch.full_like(mean, 1e-12), rule)
        assert float(mu) == pytest.approx(float(aggregate_ratings(mean, rule)), abs=1e-9)


@pytest.mark.parametrize("rule", RULES)
def test_gradients_are_those_of_finite_differences(rule: Aggregation) -> None:
    generator = torch.Generator().manual_seed(3)
    mean = torch.randn(4, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    sigma = (torch.rand(4, 3, generator=generator, dtype=torch.float64) + 0.2).requires_grad_()
    assert torch.autograd.gradcheck(lambda m, s: aggregate(m, s, rule), (mean, sigma))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("gap", [0.0, 1.0, 1e6])
@pytest.mark.parametrize("sigmas", [(1e-4, 50.0), (1e-15, 1e-15), (1e8, 1e8)])
def test_extremes_stay_finite_in_float32(rule: Aggregation, gap: float, sigmas: tuple[float, float]) -> None:
    mean, sigma = tensor([gap, 0.0], requires_grad=True), tensor(sigmas, requires_grad=True)
    mu, deviation = aggregate(mean, sigma, rule)
    (mu + deviation).backward()
    assert mu.isfinite() and deviation.isfinite() and deviation > 0
    assert mean.grad is not None and mean.grad.isfinite().all()
    assert sigma.grad is not None and sigma.grad.isfinite().all()
