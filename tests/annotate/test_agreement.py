"""Agreement statistics against published examples and real raters, and the bootstrap behind their intervals."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from panels import KRIPPENDORFF_2011, NONE, panel_of, rows_of
from rated_run import make_run

from stages.annotate import step as annotate
from stages.annotate.agreement.alpha import (
    Panel,
    agreement,
    alpha,
    by_task,
    directions,
    overall,
    panels,
    rater_tables,
    summary,
    weighted_kappa,
)
from stages.annotate.agreement.bootstrap import estimate, resampled_sums, share

BOYD_1982 = np.array([[21, 12, 0, 0], [4, 17, 1, 0], [3, 9, 15, 2], [0, 0, 0, 1]])  # 85 mammograms, two radiologists
COHEN_1968 = np.array([[0.44, 0.07, 0.09], [0.05, 0.20, 0.05], [0.01, 0.03, 0.06]])
COHEN_WEIGHTS = np.array([[0, 1, 3], [1, 0, 6], [3, 6, 0]])


@pytest.mark.parametrize(("metric", "published"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)])
def test_alpha_of_krippendorffs_example(metric: Any, published: float) -> None:
    coincidences, _, items = rater_tables(panel_of(KRIPPENDORFF_2011), [1, 2, 3, 4, 5])
    assert items == 11, "a unit with one rating does not count"
    assert coincidences.sum() == 40, "the example has 40 pairable values"
    assert alpha(coincidences.sum(0, keepdims=True), np.arange(1.0, 6.0), metric)[0] == pytest.approx(published, abs=0.0005)


@pytest.mark.parametrize(("power", "published"), [(0, 0.4728), (1, 0.5684), (2, 0.6714)])
def test_weighted_kappa_of_the_mammograms(power: int, published: float) -> None:
    distance = np.abs(np.subtract.outer(range(4), range(4))).astype(float)
    weights = (distance > 0).astype(float) if power == 0 else distance**power
    assert weighted_kappa(BOYD_1982[None], weights)[0] == pytest.approx(published, abs=0.00005)


def test_weighted_kappa_of_cohens_example() -> None:
    assert weighted_kappa(COHEN_1968[None], COHEN_WEIGHTS)[0] == pytest.approx(0.348, abs=0.0005)
    assert weighted_kappa(COHEN_1968[None], 1 - np.eye(3))[0] == pytest.approx(0.492, abs=0.0005)


IMAGENHUB = {  # three trained raters on a scale of 0, 0.5, 1: alpha (ordinal), exact agreement, agreement on strict directions
    ("Mask*", "Mask-Guided_IE"): {"semantic_consistency": (0.701, 0.769, 0.951), "perceptual_quality": (0.607, 0.642, 0.912)},
    ("Subject-Driven_IE", "Subject-Driven_IE"): {
        "semantic_consistency": (0.584, 0.720, 0.941),
        "perceptual_quality": (0.269, 0.612, 0.875),
    },
}
RATER_PAIR_KAPPAS = {"semantic_consistency": (0.69, 0.78), "perceptual_quality": (0.56, 0.66)}


@pytest.mark.parametrize("task", IMAGENHUB)
def test_agreement_of_the_raters_of_imagenhub(tmp_path: Path, shared_data: Path, task: tuple[str, str]) -> None:
    context = make_run(tmp_path / "run")
    (context.run.path / "generate" / "index.json").unlink()
    files = sorted((shared_data / "imagenhub").glob(f"ImagenHub_{task[0]}/*.tsv"))
    index = annotate.ingest(context, files, "imagenhub").index
    for dimension, (ordinal, exact, direction) in IMAGENHUB[task].items():
        found = index.results["agreement"][dimension]
        assert found["alpha_ordinal"]["value"] == pytest.approx(ordinal, abs=0.002)
        assert found["exact"]["value"] == pytest.approx(exact, abs=0.002)
        assert found["direction"]["value"] == pytest.approx(direction, abs=0.002)
        assert found["alpha_ordinal"]["low"] < ordinal < found["alpha_ordinal"]["high"]
        assert found["raters"] == 3
    if task[1] == "Mask-Guided_IE":
        parts = panels(context.run.step("annotate").read("ratings"))
        for dimension, bounds in RATER_PAIR_KAPPAS.items():
            kappas = [_kappa(parts[dimension], *pair) for pair in combinations(range(3), 2)]
            assert (min(kappas), max(kappas)) == pytest.approx(bounds, abs=0.006)


def _kappa(panel: Panel, a: int, b: int) -> float:
    """Quadratic weighted kappa of two raters from their own table."""
    level = (panel.value * 2).astype(int)
    of = [dict(zip(panel.item[panel.rater == rater], level[panel.rater == rater], strict=True)) for rater in (a, b)]
    counts = np.zeros((1, 3, 3))
    for item in of[0].keys() & of[1].keys():
        counts[0, of[0][item], of[1][item]] += 1
    return weighted_kappa(counts, np.subtract.outer(range(3), range(3)) ** 2)[0]


def test_without_variation_or_overlap_there_is_no_number() -> None:
    same = agreement(panel_of(np.full((3, 5), 4.0)), [1, 2, 3, 4], seed=0)
    for name in ("alpha_nominal", "alpha_ordinal", "alpha_interval", "quadratic_weighted_kappa"):
        assert same[name] == {"value": None, "low": None, "high": None, "n": 5, "note": "no variation"}
    assert same["exact"]["value"] == 1.0
    alone = agreement(panel_of(np.array([[1.0, 2.0, 3.0]])), [1, 2, 3, 4], seed=0)
    assert alone["alpha_ordinal"]["note"] == "no item was rated twice" and alone["direction"]["note"] == "no pair was ordered twice"
    assert alone["items_rated_twice"] == 0 and alone["level_shares"] == {"1": 0.333333, "2": 0.333333, "3": 0.333333, "4": 0.0}


def test_perfect_and_opposite_raters() -> None:
    perfect = agreement(panel_of(np.array([[1.0, 2, 3, 4], [1, 2, 3, 4]])), [1, 2, 3, 4], seed=0)
    assert [
        perfect[name]["value"] for name in ("alpha_nominal", "alpha_ordinal", "alpha_interval", "exact", "quadratic_weighted_kappa")
    ] == [1.0] * 5
    opposite = agreement(panel_of(np.array([[1.0, 4, 1, 4], [4, 1, 4, 1]])), [1, 2, 3, 4], seed=0)
    assert opposite["alpha_interval"]["value"] < -0.5 and opposite["exact"]["value"] == 0 and opposite["within_one_level"]["value"] == 0


def test_exact_and_within_one_level_count_pairs_of_raters() -> None:
    found = agreement(panel_of(np.array([[1.0, 2], [1, 4], [2, NONE]])), [1, 2, 3, 4], seed=0)
    assert found["exact"]["value"] == 0.25, "pairs: 1-1, 1-2, 1-2, 2-4"
    assert found["within_one_level"]["value"] == 0.75
    half_steps = agreement(panel_of(np.array([[0.0, 0.0], [0.5, 1.0]])), [0, 0.5, 1], seed=0)
    assert half_steps["within_one_level"]["value"] == 0.5, "a level is a step of the scale, not a point"


def test_directions_by_hand() -> None:
    # pairs (0,1) (0,2) (1,2): rater one > > =, rater two > < >
    found = directions(panel_of(np.array([[4.0, 2, 2], [3, 1, 4]]), groups=[0, 0, 0]), seed=0)
    assert found["direction"]["value"] == 0.5 and found["direction"]["n"] == 2
    # labels: one's two strict pairs, of which two agrees with one; two's three, of which one agrees with one and ties one
    assert found["rater_predicts_rater"]["value"] == pytest.approx((1 + 1.5) / 5) and found["rater_predicts_rater"]["n"] == 5
    assert found["rater_predicts_rater_ties_wrong"]["value"] == pytest.approx(2 / 5)


def test_pairs_are_formed_within_a_group_and_a_round() -> None:
    scores = np.array([[1.0, 4], [1, 4]])
    assert directions(panel_of(scores, groups=[0, 1]), seed=0)["direction"]["note"]
    panel = panel_of(scores, groups=[0, 0])
    assert directions(panel, seed=0)["direction"]["n"] == 1
    rounds = Panel(panel.group, panel.item, panel.item, panel.rater, panel.value)
    assert directions(rounds, seed=0)["direction"]["note"], "one candidate per round gives no pair"


def test_overall_is_the_sum_of_all_dimensions() -> None:
    ratings = rows_of({"g": {"ann": {"x": [4, 1], "y": [1, 2]}, "bob": {"x": [3, 1], "y": [1, 1]}, "cat": {"x": [1, 4]}}})
    whole = overall(ratings)
    assert sorted(whole.value) == [2, 3, 4, 5], "cat gave one dimension only"
    found = summary(ratings, [1, 2, 3, 4], seed=0)
    assert found["overall"]["direction"]["value"] == 1.0
    assert found["x"]["direction"]["value"] == pytest.approx(1 / 3) and "exact" not in found["overall"]


def test_agreement_by_task_needs_more_than_one() -> None:
    ratings = rows_of({"g": {"ann": {"x": [4, 1]}, "bob": {"x": [4, 1]}}, "h": {"ann": {"x": [1, 3]}, "bob": {"x": [3, 1]}}})
    found = by_task(ratings, {"g": "add", "h": "remove"}, [1, 2, 3, 4], seed=0)
    assert [found[task]["x"]["direction"]["value"] for task in ("add", "remove")] == [1.0, 0.0]
    assert by_task(ratings, {"g": "add", "h": "add"}, [1, 2, 3, 4], seed=0) == {}


SCORES = st.lists(st.lists(st.sampled_from([1.0, 2.0, 3.0, 4.0, NONE]), min_size=3, max_size=3), min_size=2, max_size=12)


@given(SCORES, st.randoms())
@settings(max_examples=60, deadline=None)
def test_order_and_names_of_raters_do_not_matter(columns: list[list[float]], random: Any) -> None:
    scores = np.array(columns).T
    panel = panel_of(scores, groups=[i // 3 for i in range(scores.shape[1])])
    order = list(range(len(panel.value)))
    random.shuffle(order)
    shuffled = Panel(panel.group[order], panel.round[order], panel.item[order], (panel.rater[order] + 1) % 3, panel.value[order])
    assert agreement(shuffled, [1, 2, 3, 4], seed=5) == agreement(panel, [1, 2, 3, 4], seed=5)


@given(SCORES)
@settings(max_examples=60, deadline=None)
def test_statistics_stay_in_their_range(columns: list[list[float]]) -> None:
    found = agreement(panel_of(np.array(columns).T), [1, 2, 3, 4], seed=0)
    for name, value in found.items():
        if isinstance(value, dict) and value.get("value") is not None:
            assert value["value"] <= 1 and value["low"] <= value["high"] <= 1
            if not name.startswith(("alpha", "quadratic")):
                assert value["low"] >= 0
    assert found["exact"]["value"] is None or found["exact"]["value"] <= found["within_one_level"]["value"]


def test_nominal_alpha_of_two_raters_is_scotts_pi() -> None:
    rng = np.random.default_rng(3)
    truth = rng.integers(1, 5, 400)
    scores = np.stack([np.where(rng.random(400) < 0.3, rng.integers(1, 5, 400), truth) for _ in range(2)]).astype(float)
    coincidences, pairs, items = rater_tables(panel_of(scores), [1, 2, 3, 4])
    pi = weighted_kappa(pairs.sum(0, keepdims=True), 1 - np.eye(4))[0]
    n = 2 * items  # alpha corrects pi for the finite sample: Krippendorff 2011, section on two observers
    assert alpha(coincidences.sum(0, keepdims=True), np.arange(4.0), "nominal")[0] == pytest.approx(pi + (1 - pi) / n)


def test_intervals_cover_and_grow_with_clustering() -> None:
    rng = np.random.default_rng(1)
    hits = (rng.random(400) < 0.7).astype(float)
    single = np.stack([hits, np.ones(400)], axis=1)
    found = estimate(single, resampled_sums(single, seed=0), share, n=400, undefined="")
    half = 1.96 * np.sqrt(hits.mean() * (1 - hits.mean()) / 400)
    assert found.value == pytest.approx(hits.mean())
    assert (found.low, found.high) == pytest.approx((hits.mean() - half, hits.mean() + half), abs=0.01)
    repeated = single * 10  # ten copies of each item within its group carry no further information
    again = estimate(repeated, resampled_sums(repeated, seed=0), share, n=4000, undefined="")
    assert (again.low, again.high) == (found.low, found.high)
    assert np.array_equal(resampled_sums(single, seed=0), resampled_sums(single, seed=0))
    assert not np.array_equal(resampled_sums(single, seed=0), resampled_sums(single, seed=1))
    assert resampled_sums(single, seed=0)[:, 1].tolist() == [400.0] * 1000, "as many groups are drawn as there are"
