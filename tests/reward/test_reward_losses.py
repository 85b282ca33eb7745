"""The losses and the pairs they learn from, against published numbers and the properties they must have."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import log_expit
from torch import Tensor, tensor

from reward.config import Aggregation
from reward.evaluation.evaluate import from_scores
from reward.evaluation.metrics import labelled_pairs
from reward.inputs.groups import Preference, RatedGroup, Ties, build_preferences
from reward.training.config import LossConfig
from reward.training.losses import (
    PairTargets,
    RatingTargets,
    bradley_terry,
    bradley_terry_ties,
    preference_log_probability,
    regression,
    reward_loss,
    uncertainty,
    uncertainty_released,
)
from reward.training.quadrature import expected_log_sigmoid, log_expected_sigmoid
from reward.training.targets import loss_targets

DIMENSIONS = ("instruction_following", "visual_quality")
NAN = float("nan")
PairLoss = Callable[..., Tensor]
PAIR_LOSSES: list[PairLoss] = [uncertainty, uncertainty_released, bradley_terry, bradley_terry_ties]
KINDS = get_args(LossConfig.model_fields["kind"].annotation)
means = st.floats(-8, 8)
sigmas = st.floats(0.05, 3)


def exact(value: float) -> Tensor:
    return tensor(value, dtype=torch.float64)


def loss_of(m: float, s: float, target: float = 1.0, loss: PairLoss = uncertainty, **settings: Any) -> Tensor:
    """Loss of a pair whose means differ by m and whose difference has deviation s."""
    part = exact(s / math.sqrt(2))
    return loss(exact(m), part, exact(0.0), part, exact(target), **settings)


# -------------------------------------------------------------------------------------------------------------- quadrature


def integrated(m: float, s: float) -> tuple[float, float]:
    """log E[sigmoid(z)] and E[log sigmoid(z)], z ~ N(m, s^2), by adaptive integration."""
    centre = min(max(-m / s, 0.0), s)
    peak = log_expit(m + s * centre) - centre**2 / 2
    kink = [-m / s] if abs(m / s) < 30 else None

    def integral(function: Callable[[float], float]) -> float:
        return quad(function, -30, 30, points=kink, epsabs=0, epsrel=1e-11, limit=500)[0] / math.sqrt(2 * math.pi)

    inside = integral(lambda e: math.exp(log_expit(m + s * e) - e * e / 2 - peak))
    return math.log(inside) + peak, integral(lambda e: math.exp(-e * e / 2) * log_expit(m + s * e))


@pytest.mark.parametrize(("s", "tolerance"), [(1e-6, 1e-10), (0.3, 1e-10), (1.0, 1e-10), (3.2, 1e-10), (5.0, 1e-10), (10.0, 2e-6)])
def test_quadrature_against_adaptive_integration(s: float, tolerance: float) -> None:
    for m in (-30.0, -10.0, -4.4, -1.0, 0.0, 0.7, 3.0, 10.0, 30.0):
        of_mean, mean_of = integrated(m, s)
        assert float(log_expected_sigmoid(exact(m), exact(s))) == pytest.approx(of_mean, abs=3 * tolerance)
        assert float(expected_log_sigmoid(exact(m), exact(s))) == pytest.approx(mean_of, abs=3 * tolerance)
        assert float(log_expected_sigmoid(tensor(m), tensor(s))) == pytest.approx(of_mean, abs=5e-6, rel=1e-6), "in float32"


@pytest.mark.parametrize("expectation", [log_expected_sigmoid, expected_log_sigmoid])
def test_gradients_of_the_quadrature(expectation: Callable[[Tensor, Tensor], Tensor]) -> None:
    m = tensor([-30.0, -7.0, -0.5, 0.0, 2.0, 9.0], dtype=torch.float64, requires_grad=True)
    s = tensor([0.5, 3.0, 0.1, 1.0, 10.0, 2.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(expectation, (m, s), atol=1e-4)


@pytest.mark.parametrize("expectation", [log_expected_sigmoid, expected_log_sigmoid])
@pytest.mark.parametrize("m", [-1e4, -30.0, 0.0, 30.0, 1e4])
@pytest.mark.parametrize("s", [0.0, 1e-20, 0.1, 10.0, 1000.0])
def test_extremes_of_the_quadrature_stay_finite_in_float32(expectation: Callable[[Tensor, Tensor], Tensor], m: float, s: float) -> None:
    where = (tensor(m, requires_grad=True), tensor(s, requires_grad=True))
    value = expectation(*where)
    assert value.isfinite() and all(part.isfinite() for part in torch.autograd.grad(value, where))


# ---------------------------------------------------------------------------------------- against published numbers


@pytest.mark.parametrize(
    ("m", "s", "released", "paper", "probit"),
    [  # E[-log sigmoid], -log E[sigmoid] and its probit form
        (-2, 0.05, 2.127, 2.126, 2.126), (-2, 1, 2.183, 1.861, 1.863), (-2, 2, 2.356, 1.491, 1.500),
        (0, 0.05, 0.693, 0.693, 0.693), (0, 1, 0.806, 0.693, 0.693), (0, 2, 1.068, 0.693, 0.693),
        (2, 0.05, 0.127, 0.127, 0.127), (2, 1, 0.183, 0.169, 0.169), (2, 2, 0.357, 0.255, 0.253),
    ],
)  # fmt: skip
def test_three_forms_of_the_uncertainty_loss_at_known_values(m: float, s: float, released: float, paper: float, probit: float) -> None:
    assert float(loss_of(m, s, loss=uncertainty_released)) == pytest.approx(released, abs=2e-3)
    assert float(loss_of(m, s)) == pytest.approx(paper, abs=2e-3)
    assert float(loss_of(m, s, expectation="probit")) == pytest.approx(probit, abs=6e-4)


def parity_rows(shared_data: Path) -> Iterator[dict[str, Any]]:
    """Pairs with the losses and derivatives that the public code gives them, on given values and on model outputs."""
    for case in ("case_a", "case_b"):
        losses = json.loads((shared_data / "parity" / case / "losses.json").read_text())
        yield from losses["given_values"]["per_pair"]
        for pooled in losses["model_outputs"].values():
            for part in pooled.values():
                yield from part["per_pair"]


def recorded(row: dict[str, Any]) -> dict[str, Tensor]:
    return {name: exact(row[name]).requires_grad_() for name in ("mu_A", "log_sigma_A", "mu_B", "log_sigma_B")}


def on_row(loss: PairLoss, row: dict[str, Any], target: float = 1.0, **settings: Any) -> tuple[float, dict[str, float]]:
    """A loss of one recorded pair, and its derivatives by the names that the recording uses."""
    values = recorded(row)
    result = loss(values["mu_A"], values["log_sigma_A"].exp(), values["mu_B"], values["log_sigma_B"].exp(), exact(target), **settings)
    gradients = torch.autograd.grad(result, list(values.values()), allow_unused=True, materialize_grads=True)
    return float(result.detach()), dict(zip(values, map(float, gradients), strict=True))


def test_the_losses_of_pairs_are_the_recorded_ones(shared_data: Path) -> None:
    rows = list(parity_rows(shared_data))
    assert len(rows) == 2 * (12 + 2 * 3 * 2)
    for row in rows:
        for loss, name in ((uncertainty_released, "uncertainty"), (uncertainty, "paper")):
            value, gradients = on_row(loss, row)
            assert value == pytest.approx(row[f"{name}_exact"], abs=1e-8)
            assert gradients == pytest.approx(row[f"{name}_grad"], abs=1e-8)
        assert on_row(uncertainty, row, expectation="probit")[0] == pytest.approx(row["paper_probit_approximation"], abs=1e-8)
        for loss, target, name in (
            (bradley_terry, 1.0, "bt"),
            (bradley_terry_ties, 1.0, "btt_decided"),
            (bradley_terry_ties, 0.5, "btt_tie"),
        ):
            value, gradients = on_row(loss, row, target)
            assert value == pytest.approx(row[name], abs=1e-8)
            assert gradients == pytest.approx(
                {"mu_A": row["grad_mu_A"][name], "mu_B": row["grad_mu_B"][name], "log_sigma_A": 0, "log_sigma_B": 0}, abs=1e-8
            )
        for target, name in ((1.0, "A"), (0.0, "B"), (0.5, "tie")):
            assert math.exp(-on_row(bradley_terry_ties, row, target)[0]) == pytest.approx(row[f"btt_P_{name}"], abs=1e-8)


def test_regression_is_the_recorded_one(shared_data: Path) -> None:
    for row in parity_rows(shared_data):
        a, b = exact(row["mu_A"]).requires_grad_(), exact(row["mu_B"]).requires_grad_()
        ratings = tensor([row["z_A"], row["z_B"]], dtype=torch.float64)
        targets = (ratings - LossConfig().regression_centre).sum(1)
        assert targets.tolist() == pytest.approx([row["reg_target_A"], row["reg_target_B"]], abs=1e-8)
        loss = regression(torch.stack([a, b]), targets).mean()
        assert float(loss.detach()) == pytest.approx(row["reg"], abs=1e-8)
        gradients = [float(value) for value in torch.autograd.grad(loss, (a, b))]
        assert gradients == pytest.approx([row["grad_mu_A"]["reg"], row["grad_mu_B"]["reg"]], abs=1e-8)


@pytest.mark.parametrize("case", ["case_a", "case_b"])
@pytest.mark.parametrize("mode", ["1d", "mrope"])
@pytest.mark.parametrize("rule", ["mean", "min", "sum"])
def test_the_whole_loss_from_the_heads_is_the_recorded_mean_of_the_batch(shared_data: Path, case: str, mode: str, rule: str) -> None:
    folder = shared_data / "parity" / case
    arrays, inputs = np.load(folder / "arrays.npz"), json.loads((folder / "inputs.json").read_text())["pairs"]
    part = json.loads((folder / "losses.json").read_text())["model_outputs"][mode][rule]["batch_mean"]
    heads = torch.cat(  # [row, column, dimension], rows A0 A1 B0 B1
        [torch.stack([tensor(arrays[f"head.{mode}.{side}.dim{d}"]).double() for d in (1, 2)], dim=-1) for side in "AB"]
    )
    pairs = PairTargets(tensor([0, 1]), tensor([2, 3]), tensor([[1.0, NAN, NAN]] * 2))
    ties = PairTargets(tensor([0, 1]), tensor([2, 3]), tensor([[0.5, NAN, NAN]] * 2))
    ratings = RatingTargets(tensor([[pair[f"scores_{side}"][f"dim{d}"] for d in (1, 2)] for side in "AB" for pair in inputs]).double())
    names: dict[str, Aggregation] = {"mean": "reference_mean", "min": "reference_min", "sum": "reference_sum"}
    expected = {"uncertainty": "paper_exact", "uncertainty_released": "uncertainty_exact", "bradley_terry": "bt", "regression": "reg"}
    for kind, targets, key in [
        *((kind, ratings if kind == "regression" else pairs, key) for kind, key in expected.items()),
        ("bradley_terry_ties", pairs, "btt_decided"),
        ("bradley_terry_ties", ties, "btt_tie"),
    ]:
        if kind == "regression" and rule != "sum":
            continue  # recorded for targets that are sums, whatever the pooling
        config = LossConfig.model_validate({"kind": kind, "per_dimension_weight": 0})
        loss = reward_loss(heads[:, 0], heads[:, 1].exp(), targets, config, names[rule])
        assert float(loss.total) == pytest.approx(part[key], abs=5e-6), kind  # recorded poolings are float32


# ---------------------------------------------------------------------------------------------------------- properties


@settings(deadline=None)
@given(m=st.floats(-4.4, 4.4), s=st.floats(0, 10))
def test_probit_is_close_to_the_integral_for_moderate_gaps(m: float, s: float) -> None:
    close, right = (float(loss_of(m, s, expectation=name)) for name in ("probit", "quadrature"))
    assert abs(math.exp(-close) - math.exp(-right)) < 0.01


@settings(deadline=None)
@given(m=st.floats(-40, 40), s=st.floats(0, 1.9))
def test_probit_is_close_to_the_integral_for_moderate_sigmas(m: float, s: float) -> None:
    close, right = (float(loss_of(m, s, expectation=name)) for name in ("probit", "quadrature"))
    assert abs(math.exp(-close) - math.exp(-right)) < 0.01


def test_what_probit_costs_elsewhere() -> None:
    """The range that the docstring states is not a modest one: outside, P is off by more than 0.01, and the loss by more than one."""
    assert math.exp(-float(loss_of(6.4, 3, expectation="probit"))) < math.exp(-float(loss_of(6.4, 3))) - 0.01
    assert float(loss_of(-10, 2)) - float(loss_of(-10, 2, expectation="probit")) > 1.5


@pytest.mark.parametrize("expectation", ["quadrature", "probit"])
@settings(deadline=None)
@given(a=means, b=means, sa=sigmas, sb=sigmas, shift=means)
def test_the_two_orders_sum_to_one_and_only_differences_matter(
    expectation: Any, a: float, b: float, sa: float, sb: float, shift: float
) -> None:
    values = [exact(v) for v in (a, sa, b, sb)]
    wins = preference_log_probability(*values, expectation)
    loses = preference_log_probability(values[2], values[3], values[0], values[1], expectation)
    shifted = preference_log_probability(values[0] + shift, values[1], values[2] + shift, values[3], expectation)
    assert float(wins.exp() + loses.exp()) == pytest.approx(1, abs=1e-9)
    assert float(shifted) == pytest.approx(float(wins), abs=1e-9)


@pytest.mark.parametrize("loss", PAIR_LOSSES)
@settings(deadline=None)
@given(a=means, b=means, sa=sigmas, sb=sigmas, shift=st.floats(-100, 100), target=st.sampled_from([0.0, 0.5, 1.0]))
def test_shifting_all_scores_changes_no_loss(loss: PairLoss, a: float, b: float, sa: float, sb: float, shift: float, target: float) -> None:
    parts = exact(sa), exact(sb), exact(target)
    before = loss(exact(a), parts[0], exact(b), parts[1], parts[2])
    after = loss(exact(a + shift), parts[0], exact(b + shift), parts[1], parts[2])
    assert float(after) == pytest.approx(float(before), abs=1e-9)


@pytest.mark.parametrize("loss", PAIR_LOSSES)
@settings(deadline=None)
@given(a=means, b=means, sa=sigmas, sb=sigmas, target=st.sampled_from([0.0, 0.5, 1.0]))
def test_swapping_the_pair_and_its_label_changes_no_loss(loss: PairLoss, a: float, b: float, sa: float, sb: float, target: float) -> None:
    one = loss(exact(a), exact(sa), exact(b), exact(sb), exact(target))
    other = loss(exact(b), exact(sb), exact(a), exact(sa), exact(1 - target))
    assert float(one) == pytest.approx(float(other), abs=1e-9)


@pytest.mark.parametrize("expectation", ["quadrature", "probit"])
@pytest.mark.parametrize(("m", "sign"), [(2.0, 1), (0.0, 0), (-2.0, -1)])
def test_the_papers_form_learns_noise(expectation: Any, m: float, sign: int) -> None:
    """Easy pairs pull sigma down (its gradient is positive), misordered ones push it up, even ones leave it."""
    sigma = exact(1.0).requires_grad_()
    uncertainty(exact(m), sigma, exact(0.0), sigma, exact(1.0), expectation).backward()
    assert sigma.grad is not None and np.sign(round(float(sigma.grad), 9)) == sign


def test_the_released_form_only_pulls_sigma_down_and_most_where_it_does_not_know() -> None:
    gradients = []
    for m in (2.0, 0.0, -2.0):
        sigma = exact(1.0).requires_grad_()
        uncertainty_released(exact(m), sigma, exact(0.0), sigma, exact(1.0)).backward()
        assert sigma.grad is not None
        gradients.append(float(sigma.grad))
    easy, ambiguous, misordered = gradients
    assert min(gradients) > 0 and ambiguous > max(easy, misordered) and easy == pytest.approx(misordered)


@pytest.mark.parametrize("loss", PAIR_LOSSES)
@pytest.mark.parametrize("m", [-1e4, -30.0, 30.0, 1e4])
@pytest.mark.parametrize("s", [0.1, 10.0])
def test_huge_gaps_stay_finite(loss: PairLoss, m: float, s: float) -> None:
    mu, sigma = tensor(m, requires_grad=True), tensor(s, requires_grad=True)
    value = loss(mu, sigma, tensor(0.0), sigma, tensor(1.0))
    gradients = torch.autograd.grad(value, (mu, sigma), allow_unused=True, materialize_grads=True)
    assert value.isfinite() and all(gradient.isfinite() for gradient in gradients)
    assert m > 0 or gradients[0] < 0, "a pair that is far from its order is still pulled towards it"


@pytest.mark.parametrize("loss", PAIR_LOSSES)
@settings(deadline=None)
@given(m=means, s=sigmas)
def test_a_target_of_one_half_wants_equal_scores(loss: PairLoss, m: float, s: float) -> None:
    assert float(loss_of(m, s, 0.5, loss)) >= float(loss_of(0.0, s, 0.5, loss)) - 1e-9
    assert float(loss_of(m, s, 0.5, loss)) == pytest.approx(float(loss_of(-m, s, 0.5, loss)), abs=1e-9)


@settings(deadline=None)
@given(m=means, k=st.floats(1.01, 50))
def test_three_outcomes_sum_to_one(m: float, k: float) -> None:
    losses = [float(loss_of(m, 1.0, target, bradley_terry_ties, tie_constant=k)) for target in (1.0, 0.5, 0.0)]
    assert sum(math.exp(-loss) for loss in losses) == pytest.approx(1, abs=1e-9)


# ------------------------------------------------------------------------------------------------------- the whole loss


def targets(overall: list[float], dimensions: list[list[float]]) -> PairTargets:
    count = len(overall)
    labels = torch.cat([tensor(overall)[:, None], tensor(dimensions)], dim=1)
    return PairTargets(torch.zeros(count, dtype=torch.int64), torch.ones(count, dtype=torch.int64), labels)


@pytest.mark.parametrize("expectation", ["quadrature", "probit"])
def test_terms_are_averaged_over_the_pairs_that_have_the_label(expectation: Literal["quadrature", "probit"]) -> None:
    mean, sigma = tensor([[1.0, 0.0], [0.0, 0.5]]), torch.full((2, 2), 2.0)
    pairs = targets([1.0, NAN], [[1.0, NAN], [1.0, 0.0]])
    config = LossConfig(aggregate_weight=2.0, per_dimension_weight=3.0, expectation=expectation)
    result = reward_loss(mean, sigma, pairs, config, "mean")
    following = uncertainty(mean[0, 0], sigma[0, 0], mean[1, 0], sigma[1, 0], tensor(1.0), expectation)
    quality = uncertainty(mean[0, 1], sigma[0, 1], mean[1, 1], sigma[1, 1], tensor(0.0), expectation)
    sigma_of_average = tensor(math.sqrt(2.0))
    overall = uncertainty(tensor(0.5), sigma_of_average, tensor(0.25), sigma_of_average, tensor(1.0), expectation)
    assert result.dimensions.tolist() == pytest.approx([float(following), float(quality)])
    assert float(result.aggregate) == pytest.approx(float(overall))
    assert float(result.total) == pytest.approx(2 * float(result.aggregate) + 3 * float(following + quality) / 2)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "regression"])
def test_a_missing_label_gives_no_gradient_and_no_nan(kind: str) -> None:
    mean, sigma = torch.zeros(2, 2, requires_grad=True), torch.ones(2, 2, requires_grad=True)
    result = reward_loss(mean, sigma, targets([NAN], [[1.0, NAN]]), LossConfig.model_validate({"kind": kind}), "mean")
    result.total.backward()
    assert float(result.aggregate.detach()) == 0
    assert (sigma.grad is None) == kind.startswith("bradley_terry"), "sigma has no part in them"
    assert sigma.grad is None or sigma.grad.isfinite().all()
    assert mean.grad is not None
    assert mean.grad[:, 0].abs().min() > 0 and mean.grad[:, 1].abs().max() == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("aggregation", get_args(Aggregation))
def test_the_shares_of_workers_add_up(kind: str, aggregation: Aggregation) -> None:
    generator = torch.Generator().manual_seed(0)
    mean, sigma = torch.randn(4, 2, generator=generator), torch.rand(4, 2, generator=generator) + 0.1
    groups = [group("x", (4, 4), (1, 2)), group("y", (3, 3), (3, 3))]  # the second has no label, and as many rows
    config = LossConfig.model_validate({"kind": kind})
    whole = loss_targets(groups, DIMENSIONS, config)
    shares = [
        reward_loss(mean[rows], sigma[rows], loss_targets([one], DIMENSIONS, config), config, aggregation, whole.counts())
        for one, rows in zip(groups, (slice(0, 2), slice(2, 4)), strict=True)
    ]
    together = reward_loss(mean, sigma, whole, config, aggregation)
    assert float(sum(share.total for share in shares)) == pytest.approx(float(together.total), rel=1e-5)
    assert float(together.total) > 0


def test_regression_asks_of_the_aggregate_what_its_rule_makes_of_the_ratings() -> None:
    ratings = RatingTargets(tensor([[4.0, 1.0], [2.0, 3.0]]))
    mean, sigma = tensor([[0.5, -1.0], [0.0, 1.0]]), torch.full((2, 2), 0.2)
    wanted = {"mean": (0.25, 0.25), "sum": (0.5, 0.5), "reference_min": (-1.25, -0.25)}
    found = {"mean": (-0.25, 0.5), "sum": (-0.5, 1.0), "reference_min": (-1.0, 0.0)}
    rules: list[Aggregation] = ["mean", "sum", "reference_min"]
    for rule in rules:
        loss = reward_loss(mean, sigma, ratings, LossConfig(kind="regression"), rule)
        expected = np.square(np.subtract(found[rule], wanted[rule])).mean()
        assert float(loss.aggregate) == pytest.approx(expected)
        assert loss.dimensions.tolist() == pytest.approx([((0.5 - 1.75) ** 2 + 0.25**2) / 2, (0.25**2 + 0.25**2) / 2])


def test_targets_of_the_other_kind_are_a_mistake_of_the_caller() -> None:
    scores, ratings, pairs = torch.ones(2, 2), RatingTargets(torch.ones(2, 2)), targets([1.0], [[1.0, 0.0]])
    with pytest.raises(AssertionError, match="bradley_terry learns from pairs"):
        reward_loss(scores, scores, ratings, LossConfig(kind="bradley_terry"), "mean")
    with pytest.raises(AssertionError, match="regression learns from ratings"):
        reward_loss(scores, scores, pairs, LossConfig(kind="regression"), "mean")


def test_settings_that_mean_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="nothing would be learnt"):
        LossConfig(aggregate_weight=0, per_dimension_weight=0)
    with pytest.raises(ValueError, match="expectation probit is for kind uncertainty only, not for bradley_terry"):
        LossConfig(kind="bradley_terry", expectation="probit")


# ------------------------------------------------------------------------------------------------- pairs and groups


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


@pytest.mark.parametrize(
    ("ties", "complementary", "full"),
    [
        ("opposed", [(1.0, "tie-disentangled"), (0.0, "tie-disentangled")], [(None, "plain")]),
        ("all", [(1.0, "tie-disentangled"), (0.0, "tie-disentangled")], [(1.0, "tie-doubled"), (0.0, "tie-doubled")]),
        ("soft", [(0.5, "tie-soft")], [(None, "plain")]),
        ("off", [(None, "plain")], [(None, "plain")]),
    ],
)
def test_what_becomes_of_ties(ties: Ties, complementary: list, full: list) -> None:
    disagreeing, equal = (build_preferences(rated(*scores), DIMENSIONS, ties) for scores in (((4, 2), (3, 3)), ((2, 3), (2, 3))))
    assert [(row.overall, row.origin) for row in disagreeing] == complementary
    assert [(row.overall, row.origin) for row in equal] == full
    assert all(row.dimensions == (1.0, 0.0) for row in disagreeing) and all(row.dimensions == (None, None) for row in equal)
    assert [row.overall for row in build_preferences(rated((4, 3), (3, 3)), DIMENSIONS, ties)] == [1.0]


def test_a_full_tie_is_kept_without_label() -> None:
    assert build_preferences(rated((2, 3), (2, 3)), DIMENSIONS) == [Preference(0, 1, (None, None), None, (0.0, 0.0))]


def test_averages_that_differ_by_rounding_are_ties() -> None:
    thirds = (0.1 + 0.2, 0.3)  # 0.30000000000000004 and 0.3
    (pair,) = build_preferences(rated((thirds[0], 1), (thirds[1], 1)), DIMENSIONS)
    assert pair.overall is None and pair.dimensions == (None, None)


@settings(deadline=None)
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


def group(name: str, *scores: tuple[float, float], ties: Ties = "opposed") -> RatedGroup:
    preferences = build_preferences(rated(*scores), DIMENSIONS, ties)
    ids = tuple(f"{name}{i}" for i in range(len(scores)))
    return RatedGroup(name, b"", "", ids, (b"",) * len(scores), tuple(rated(*scores)), tuple(preferences))


def test_pairs_of_later_groups_point_to_later_rows() -> None:
    pairs = loss_targets([group("x", (4, 4), (1, 1), (4, 4)), group("y", (1, 1), (2, 1))], DIMENSIONS, LossConfig())
    assert isinstance(pairs, PairTargets)
    assert pairs.a.tolist() == [0, 0, 1, 3] and pairs.b.tolist() == [1, 2, 2, 4]
    assert pairs.labels[:, 0].nan_to_num(-1).tolist() == [1, -1, 0, 0]
    assert pairs.counts().tolist() == [3, 3, 2]


def test_two_opposed_rows_ask_for_what_one_soft_row_asks_twice() -> None:
    mean, sigma = tensor([[0.3, -0.2], [0.1, 0.9]]), tensor([[0.5, 1.0], [0.7, 0.2]])
    config = LossConfig(per_dimension_weight=0)
    found = [
        reward_loss(
            mean, sigma, loss_targets([group("t", (4, 2), (3, 3), ties=ties)], DIMENSIONS, config), config, "mean", tensor([1, 1, 1])
        )
        for ties in ("opposed", "soft")
    ]
    assert float(found[0].total) == pytest.approx(2 * float(found[1].total))


@pytest.mark.parametrize("ties", get_args(Ties))
def test_measuring_does_not_depend_on_what_training_makes_of_ties(ties: Ties) -> None:
    tied = group("t", (4, 2), (3, 3), (3, 3), (1, 1), ties=ties)
    pairs = labelled_pairs([tied], from_scores([np.array([3.0, 2.0, 1.0, 0.0])], 2))
    assert pairs.overall.tolist() == pytest.approx([NAN, NAN, 1.0, NAN, 1.0, 1.0], nan_ok=True)
    assert pairs.dimensions[0].tolist() == [1.0, 0.0]


def test_ties_are_outcomes_for_bradley_terry_with_ties_only() -> None:
    tied = [group("t", (3, 2), (3, 2), (4, 2), ties="off")]
    config = LossConfig(kind="bradley_terry_ties")
    pairs = loss_targets(tied, DIMENSIONS, config)
    assert isinstance(pairs, PairTargets)
    assert pairs.labels.tolist() == [[0.5, 0.5, 0.5], [0.0, 0.0, 0.5], [0.0, 0.0, 0.5]]
    assert pairs.counts().tolist() == [3, 3, 3]
    assert loss_targets(tied, DIMENSIONS, LossConfig(kind="bradley_terry")).counts().tolist() == [2, 2, 0]
    mean = tensor([[2.0, 0.0], [0.0, 0.0], [0.0, 0.0]], requires_grad=True)
    reward_loss(mean, torch.ones(3, 2), pairs, config, "mean").total.backward()
    assert mean.grad is not None and mean.grad[0, 0] > 0, "equal ratings pull a score down to its equal"


def test_regression_learns_from_the_ratings_of_the_rows() -> None:
    groups = [group("x", (4, 3), (1, 2)), group("y", (2, 2), (3, 1), (1, 1))]
    ratings = loss_targets(groups, DIMENSIONS[::-1], LossConfig(kind="regression"))
    assert isinstance(ratings, RatingTargets)
    assert ratings.ratings.tolist() == [[3, 4], [2, 1], [2, 2], [1, 3], [1, 1]] and ratings.counts().tolist() == [5, 5, 5]
    with pytest.raises(ValueError, match="candidate x0 of group x has no score for style, which regression needs"):
        loss_targets(groups, ("style",), LossConfig(kind="regression"))


def test_groups_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="group lonely has 1 candidates"):
        group("lonely", (1, 1))
    with pytest.raises(ValueError, match="2 candidates, 1 ids"):
        RatedGroup("g", b"", "", ("a",), (b"", b""), tuple(rated((1, 1), (2, 2))), ())
    with pytest.raises(ValueError, match="between candidates 0 and 2"):
        RatedGroup("g", b"", "", ("a", "b"), (b"", b""), tuple(rated((1, 1), (2, 2))), (Preference(0, 2, (None, None), None, (0, 0)),))
    with pytest.raises(ValueError, match="the model has 3"):
        loss_targets([group("x", (1, 1), (2, 2))], ("a", "b", "c"), LossConfig())
