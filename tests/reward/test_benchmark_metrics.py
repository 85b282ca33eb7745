"""The rules that benchmark figures rest on, by hand and by property: ties, ranks, strict groups, comparison of models."""

from __future__ import annotations

import math
from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from reward.benchmarks import ratings, ties
from reward.benchmarks.mcnemar import compare
from reward.benchmarks.ratings import averages, spearman
from reward.benchmarks.tiger_editreward_bench import all_right, chance
from reward.evaluation.bootstrap import Bootstrap

NAN = float("nan")
margins = st.lists(st.sampled_from([-1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0, NAN]), min_size=1, max_size=12)
QUICK = Bootstrap(resamples=100)


def test_the_oracle_threshold_moves_equal_margins_together() -> None:
    margin, label = np.array([0.5, 0.5, -0.2, 0.1, -0.9, 0.0]), np.array([1, 0, 0, 1, -1, 0])
    right = {threshold: int(ties.three_way(margin, label, threshold).sum()) for threshold in (ties.NEVER, 0, 0.1, 0.2, 0.5, 0.9)}
    assert right == {ties.NEVER: 3, 0: 4, 0.1: 3, 0.2: 4, 0.5: 4, 0.9: 3}
    assert ties.oracle_threshold(margin, label) == 0.0, "the smallest of the best; moving one of the two 0.5 alone would give 5 of 6"


@given(margins, st.data())
def test_no_threshold_beats_the_oracle(values: list[float], data: st.DataObject) -> None:
    margin = np.array(values)
    label = np.array(data.draw(st.lists(st.sampled_from([-1, 0, 1]), min_size=len(values), max_size=len(values))))
    best = ties.three_way(margin, label, ties.oracle_threshold(margin, label)).sum()
    every = [ties.three_way(margin, label, threshold).sum() for threshold in (ties.NEVER, 0, 0.1, 0.25, 0.3, 0.5, 0.7, 1.0, 2.0)]
    assert best == max(every)
    assert not ties.three_way(margin, label, 2.0)[np.isnan(margin)].any(), "a failed score is right under no threshold"


def test_a_constant_scorer_reaches_the_share_of_ties_on_genai_bench() -> None:
    label = np.repeat([0, -1, 1, 0], [392, 263, 240, 24])
    margin = np.zeros(len(label))
    assert ties.three_way(margin, label, ties.oracle_threshold(margin, label)).mean() == pytest.approx(0.4527, abs=5e-5)
    assert ties.label_shares(label)["tie"] == 416 / 919
    assert np.nanmean(ties.decisive(margin, label, "wrong")) == 0 and np.nanmean(ties.decisive(margin, label, "half")) == 0.5
    assert (~np.isnan(ties.decisive(margin, label, "half"))).sum() == 503


def test_a_cross_fitted_threshold_comes_from_other_sources() -> None:
    margin, label = np.array([0.3, 1.0, 0.2, 2.0]), np.array([0, 1, 1, 1])
    source = ["a", "a", "b", "b"]
    assert ties.oracle_threshold(margin[:2], label[:2]) == 0.3 and ties.oracle_threshold(margin[2:], label[2:]) == ties.NEVER
    assert ties.cross_fitted(margin, label, source, seed=0).tolist() == [False, True, False, True]
    assert ties.three_way(margin, label, ties.oracle_threshold(margin, label)).mean() == 0.75
    with pytest.raises(ValueError, match="share one source"):
        ties.cross_fitted(margin, label, ["a"] * 4, seed=0)


@given(st.integers(0, 1000), st.integers(2, 30))
def test_cross_fitting_does_not_see_the_labels_it_is_tested_on(seed: int, sources: int) -> None:
    rng = np.random.default_rng(seed)
    margin, label, source = rng.normal(size=2 * sources), rng.integers(-1, 2, 2 * sources), [f"{n // 2}" for n in range(2 * sources)]
    before = ties.cross_fitted(margin, label, source, seed=seed)
    other = np.where(np.arange(2 * sources) < 2, (label + 2) % 3 - 1, label)  # another label for both pairs of the first source
    after = ties.cross_fitted(margin, other, source, seed=seed)
    assert not (before[:2] & after[:2]).any(), "the same prediction cannot be right for two different labels"


def test_order_of_sources_does_not_matter_for_folds() -> None:
    rng = np.random.default_rng(0)
    margin, label, source = rng.normal(size=40), rng.integers(-1, 2, 40), np.array([f"s{n % 13}" for n in range(40)])
    order = rng.permutation(40)
    straight = ties.cross_fitted(margin, label, source, seed=3)
    assert np.array_equal(straight[order], ties.cross_fitted(margin[order], label[order], source[order], seed=3))


def test_rank_correlation() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 5, 60).astype(float), rng.integers(0, 3, 60).astype(float)
    assert spearman(x, y) == pytest.approx(spearmanr(x, y).statistic)
    assert spearman(np.array([0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1, 1.0]), np.array([1.0, 1.0, 2.0])) == pytest.approx(1.0), (
        "a last bit is no rank"
    )
    assert spearman(np.zeros(3), np.array([1.0, 2.0, 3.0])) == 0 and math.isnan(spearman(np.array([1.0, 2.0]), np.ones(2)))
    assert spearman(np.array([NAN, NAN, NAN]), np.array([1.0, 2.0, 3.0])) == 0
    diluted = spearman(np.array([1.0, NAN, 3.0, 4.0, 5.0, NAN]), np.arange(6.0))
    assert 0 < diluted < 1 == pytest.approx(spearman(np.array([1.0, 3, 4, 5]), np.arange(4.0))), "what failed weakens the correlation"


def test_averages_of_correlations() -> None:
    found = averages([0.6, 0.2, NAN])
    assert found["mean"] == pytest.approx(0.4)
    assert found["tanh_of_mean"] == pytest.approx(0.379949, abs=1e-6)
    assert found["fisher"] == pytest.approx(0.420204, abs=1e-6)
    assert math.isnan(averages([NAN])["mean"]) and averages([1.0, -1.0])["fisher"] == pytest.approx(0)
    for published, mean in ((0.3618, 0.379), (0.3520, 0.368), (0.3821, 0.403), (0.4162, 0.443), (0.3450, 0.360)):
        assert averages([mean])["tanh_of_mean"] == pytest.approx(published, abs=1e-3)


@pytest.mark.parametrize(("candidates", "scorer", "judge"), [(3, 1 / 6, 1 / 8), (4, 1 / 24, 1 / 64)])
def test_chance_of_strict_groups(candidates: int, scorer: float, judge: float) -> None:
    assert chance(candidates) == {"scorer": pytest.approx(scorer), "judge of pairs": pytest.approx(judge)}
    pairs = list(combinations(range(candidates), 2))
    orders = list(permutations(range(candidates)))
    correct = np.array([order[a] > order[b] for order in orders for a, b in pairs])  # people: the first is always better
    right = all_right(correct, [str(number) for number in range(len(orders)) for _ in pairs])
    assert sum(right.values()) / len(orders) == pytest.approx(scorer)


def test_mcnemar() -> None:
    names = [str(number) for number in range(20)]
    first = {name: number < 15 for number, name in enumerate(names)}  # right: 0..14
    second = {name: 10 <= number < 17 for number, name in enumerate(names)}  # right: 10..16
    found = compare(first, second, dict(zip(names, names, strict=True)), QUICK)
    assert (found.both, found.only_first, found.only_second, found.neither) == (5, 10, 2, 3)
    assert found.p_value == pytest.approx(2 * (1 + 12 + 66) / 2**12)
    assert found.difference.value == pytest.approx(0.4) and found.difference.low < 0.4 < found.difference.high
    assert compare(first, first, dict(zip(names, names, strict=True)), QUICK).p_value == 1
    with pytest.raises(ValueError, match="same items only; x and 0 more"):
        compare(first, first | {"x": True}, {}, QUICK)


def test_intervals_keep_a_source_together() -> None:
    values = np.tile([1.0, 0.0], 50)
    alone, together = (QUICK.mean(values, source) for source in ([str(n) for n in range(100)], [str(n % 2) for n in range(100)]))
    assert alone.value == together.value == 0.5 and (together.low, together.high) == (0, 1) and 0.3 < alone.low < alone.high < 0.7
    assert math.isnan(QUICK.mean(np.array([NAN]), ["a"]).value)


def test_a_benchmark_without_items_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="imagenhub: there is no item to evaluate"):
        ratings.evaluate("imagenhub", [], {}, bootstrap=QUICK, published="fisher")
