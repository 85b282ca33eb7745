"""The ranking loss and the pairs it learns from, against published numbers and the properties they must have."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.polynomial.hermite_e import hermegauss
from torch import Tensor, tensor

from reward.config import LossConfig
from reward.groups import RatedGroup, pair_targets
from reward.losses import PairTargets, aggregate_mean, preference_log_probability, ranking_loss, uncertainty_ranking_loss
from reward.pairs import Preference, build_preferences

DIMENSIONS = ("instruction_following", "visual_quality")
NAN = float("nan")
means = st.floats(-8, 8)
sigmas = st.floats(0.05, 3)


def loss_of(m: float, s: float, target: float = 1.0) -> Tensor:
    """Loss of a pair whose means differ by m and whose difference has deviation s."""
    part = tensor(s / math.sqrt(2), dtype=torch.float64)
    return uncertainty_ranking_loss(tensor(m, dtype=torch.float64), part, tensor(0.0, dtype=torch.float64), part, tensor(target))


def exact_probability(m: float, s: float) -> float:
    """E[sigmoid(z)], z ~ N(m, s^2), by quadrature."""
    nodes, weights = hermegauss(80)
    return float((weights / (1 + np.exp(-(m + s * nodes)))).sum() / math.sqrt(2 * math.pi))


@pytest.mark.parametrize(
    ("m", "s", "exact", "probit"),
    [  # -log E[sigmoid] by 1-D integration, and its probit form, three digits
        (-2, 0.05, 2.126, 2.126), (-2, 1, 1.861, 1.863), (-2, 2, 1.493, 1.500),
        (0, 0.05, 0.693, 0.693), (0, 1, 0.693, 0.693), (0, 2, 0.693, 0.693),
        (2, 0.05, 0.127, 0.127), (2, 1, 0.169, 0.169), (2, 2, 0.255, 0.253),
    ],
)  # fmt: skip
def test_the_papers_form_at_known_values(m: float, s: float, exact: float, probit: float) -> None:
    assert float(loss_of(m, s)) == pytest.approx(probit, abs=6e-4)
    assert -math.log(exact_probability(m, s)) == pytest.approx(exact, abs=6e-4)


def test_against_values_of_the_reference_implementation(shared_data: Path) -> None:
    for case in ("case_a", "case_b"):
        losses = json.loads((shared_data / "parity" / case / "losses.json").read_text())
        rows = [
            row for modes in losses["model_outputs"].values() for part in modes.values() if "per_pair" in part for row in part["per_pair"]
        ]
        assert len(rows) >= 8
        for row in rows:
            a, sa, b, sb = (tensor(row[k], dtype=torch.float64) for k in ("mu_A", "log_sigma_A", "mu_B", "log_sigma_B"))
            loss = uncertainty_ranking_loss(a, sa.exp(), b, sb.exp(), tensor(1.0))
            assert float(loss) == pytest.approx(row["paper_probit_approximation"], abs=1e-8)
            assert float(loss) == pytest.approx(row["paper_exact"], abs=0.03)


@given(m=means, s=sigmas)
def test_the_probability_is_close_to_the_integral(m: float, s: float) -> None:
    assert math.exp(-float(loss_of(m, s))) == pytest.approx(exact_probability(m, s), abs=0.02)


@given(a=means, b=means, sa=sigmas, sb=sigmas, shift=means)
def test_only_differences_matter_and_the_two_orders_sum_to_one(a: float, b: float, sa: float, sb: float, shift: float) -> None:
    values = [tensor(v, dtype=torch.float64) for v in (a, sa, b, sb)]
    wins = preference_log_probability(*values)
    loses = preference_log_probability(values[2], values[3], values[0], values[1])
    shifted = preference_log_probability(values[0] + shift, values[1], values[2] + shift, values[3])
    assert float(wins.exp() + loses.exp()) == pytest.approx(1, abs=1e-12)
    assert float(shifted) == pytest.approx(float(wins), abs=1e-9)


@pytest.mark.parametrize(("m", "sign"), [(2.0, 1), (0.0, 0), (-2.0, -1)])
def test_sigma_learns_noise(m: float, sign: int) -> None:
    """Easy pairs pull sigma down, misordered ones push it up, even ones leave it: the released loss always pulls down."""
    sigma = tensor(1.0, dtype=torch.float64, requires_grad=True)
    uncertainty_ranking_loss(tensor(m, dtype=torch.float64), sigma, tensor(0.0), sigma, tensor(1.0)).backward()
    assert sigma.grad is not None and np.sign(round(float(sigma.grad), 12)) == sign


@pytest.mark.parametrize("m", [-1e4, 1e4])
def test_huge_gaps_stay_finite(m: float) -> None:
    mu = tensor(m, requires_grad=True)
    loss = uncertainty_ranking_loss(mu, tensor(0.1), tensor(0.0), tensor(0.1), tensor(1.0))
    loss.backward()
    assert loss.isfinite() and mu.grad is not None and mu.grad.isfinite()


@given(m=means, s=sigmas)
def test_a_soft_target_of_one_half_wants_equal_scores(m: float, s: float) -> None:
    assert float(loss_of(m, s, 0.5)) >= float(loss_of(0.0, s, 0.5)) - 1e-12
    assert float(loss_of(m, s, 0.5)) == pytest.approx(float(loss_of(-m, s, 0.5)), abs=1e-12)


def test_the_sigma_of_an_average() -> None:
    mu, sigma = aggregate_mean(tensor([[1.0, 4.0]]), tensor([[3.0, 4.0]]))
    assert mu.tolist() == [2.5] and sigma.tolist() == [2.5]  # sqrt(9 + 16) / 2, not the geometric mean


def targets(overall: list[float], dimensions: list[list[float]]) -> PairTargets:
    count = len(overall)
    return PairTargets(torch.zeros(count, dtype=torch.int64), torch.ones(count, dtype=torch.int64), tensor(overall), tensor(dimensions))


def test_terms_are_averaged_over_the_pairs_that_have_the_label() -> None:
    mean, sigma = tensor([[1.0, 0.0], [0.0, 0.5]]), torch.full((2, 2), 0.1)
    pairs = targets([1.0, NAN], [[1.0, NAN], [1.0, 0.0]])
    result = ranking_loss(mean, sigma, pairs, LossConfig(aggregate_weight=2.0, per_dimension_weight=3.0))
    following = uncertainty_ranking_loss(mean[0, 0], sigma[0, 0], mean[1, 0], sigma[1, 0], tensor(1.0))
    quality = uncertainty_ranking_loss(mean[0, 1], sigma[0, 1], mean[1, 1], sigma[1, 1], tensor(0.0))
    assert result.dimensions.tolist() == pytest.approx([float(following), float(quality)])
    assert float(result.total) == pytest.approx(2 * float(result.aggregate) + 3 * float(following + quality) / 2)


def test_a_missing_label_gives_no_gradient_and_no_nan() -> None:
    mean, sigma = torch.zeros(2, 2, requires_grad=True), torch.ones(2, 2, requires_grad=True)
    result = ranking_loss(mean, sigma, targets([NAN], [[1.0, NAN]]), LossConfig())
    result.total.backward()
    assert float(result.aggregate.detach()) == 0
    assert mean.grad is not None and sigma.grad is not None and sigma.grad.isfinite().all()
    assert mean.grad[:, 0].abs().min() > 0 and mean.grad[:, 1].abs().max() == 0


def test_the_shares_of_workers_add_up() -> None:
    generator = torch.Generator().manual_seed(0)
    mean, sigma = torch.randn(2, 2, generator=generator), torch.rand(2, 2, generator=generator) + 0.1
    overall, dimensions = [1.0, NAN, 0.0], [[1.0, NAN], [0.0, 0.0], [NAN, 1.0]]
    whole = targets(overall, dimensions)
    parts = [targets(overall[:1], dimensions[:1]), targets(overall[1:], dimensions[1:])]
    config = LossConfig()
    shares = [ranking_loss(mean, sigma, part, config, whole.counts()).total for part in parts]
    assert float(sum(shares)) == pytest.approx(float(ranking_loss(mean, sigma, whole, config).total))


def test_weights_that_learn_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="nothing would be learnt"):
        LossConfig(aggregate_weight=0, per_dimension_weight=0)


def rated(*scores: tuple[float, float]) -> list[dict[str, float]]:
    return [dict(zip(DIMENSIONS, score, strict=True)) for score in scores]


def test_all_pairs_of_seven_candidates_in_order() -> None:
    preferences = build_preferences(rated(*((4.0 - i / 2, 4.0) for i in range(7))), DIMENSIONS)
    assert [(p.a, p.b) for p in preferences] == [(a, b) for a in range(7) for b in range(a + 1, 7)]
    assert all(p.overall == 1.0 and p.dimensions == (1.0, None) and p.origin == "plain" for p in preferences)


def test_a_complementary_tie_becomes_two_opposite_rows() -> None:
    first, second = build_preferences(rated((4, 2), (3, 3)), DIMENSIONS)
    assert first == Preference(0, 1, (1.0, 0.0), 1.0, (1.0, -1.0), "tie-disentangled")
    assert second == Preference(0, 1, (1.0, 0.0), 0.0, (1.0, -1.0), "tie-disentangled")
    (left,) = build_preferences(rated((4, 2), (3, 3)), DIMENSIONS, ties="off")
    assert left == Preference(0, 1, (1.0, 0.0), None, (1.0, -1.0), "plain")


def test_a_full_tie_is_kept_without_label() -> None:
    assert build_preferences(rated((2, 3), (2, 3)), DIMENSIONS) == [Preference(0, 1, (None, None), None, (0.0, 0.0))]


def test_averages_that_differ_by_rounding_are_ties() -> None:
    thirds = (0.1 + 0.2, 0.3)  # 0.30000000000000004 and 0.3
    (pair,) = build_preferences(rated((thirds[0], 1), (thirds[1], 1)), DIMENSIONS)
    assert pair.overall is None and pair.dimensions == (None, None)


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=2, max_size=8))
def test_labels_follow_the_scores(scores: list[tuple[int, int]]) -> None:
    preferences = build_preferences(rated(*scores), DIMENSIONS)
    plain = [p for p in preferences if p.origin == "plain"]
    doubled = [p for p in preferences if p.origin != "plain"]
    assert len(plain) + len(doubled) // 2 == math.comb(len(scores), 2)
    for p in preferences:
        first, second = scores[p.a], scores[p.b]
        assert p.dimensions == tuple(None if x == y else float(x > y) for x, y in zip(first, second, strict=True))
        assert p.gap == sum(first) - sum(second)
    assert all((p.overall is None) == (p.gap == 0) for p in plain)
    assert all(p.gap == 0 and None not in p.dimensions for p in doubled)


def test_a_missing_dimension_names_the_candidate() -> None:
    with pytest.raises(ValueError, match="candidate 1 has no score for visual_quality"):
        build_preferences([*rated((1, 2)), {"instruction_following": 3}], DIMENSIONS)


def group(name: str, *scores: tuple[float, float]) -> RatedGroup:
    preferences = build_preferences(rated(*scores), DIMENSIONS)
    ids = tuple(f"{name}{i}" for i in range(len(scores)))
    return RatedGroup(name, b"", "", ids, (b"",) * len(scores), tuple(rated(*scores)), tuple(preferences))


def test_pairs_of_later_groups_point_to_later_rows() -> None:
    pairs = pair_targets([group("x", (4, 4), (1, 1), (4, 4)), group("y", (1, 1), (2, 1))], 2)
    assert pairs.a.tolist() == [0, 0, 1, 3] and pairs.b.tolist() == [1, 2, 2, 4]
    assert pairs.overall.nan_to_num(-1).tolist() == [1, -1, 0, 0]
    assert pairs.counts().tolist() == [3, 3, 2]


def test_groups_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="group lonely has 1 candidates"):
        group("lonely", (1, 1))
    with pytest.raises(ValueError, match="2 candidates, 1 ids"):
        RatedGroup("g", b"", "", ("a",), (b"", b""), tuple(rated((1, 1), (2, 2))), ())
    with pytest.raises(ValueError, match="between candidates 0 and 2"):
        RatedGroup("g", b"", "", ("a", "b"), (b"", b""), tuple(rated((1, 1), (2, 2))), (Preference(0, 2, (None, None), None, (0, 0)),))
    with pytest.raises(ValueError, match="the model has 3"):
        pair_targets([group("x", (1, 1), (2, 2))], 3)
