"""Metrics, intervals, calibration and baselines on cases small enough to do by hand."""

from __future__ import annotations

import io
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from reward.evaluation.baselines import change_from_source, closeness_scores, constant_scores, random_scores
from reward.evaluation.bootstrap import Bootstrap, SourceDraws, clustered_interval
from reward.evaluation.confidence import SHARES, calibration_error, measure_confidence, most_confident, reliability
from reward.evaluation.evaluate import evaluate, from_scores, held_out_means
from reward.evaluation.metrics import (
    LabelledPairs,
    correctness,
    head_dimension_correctness,
    labelled_pairs,
    pair_accuracy,
)
from reward.evaluation.outcomes import measure_three_way
from reward.inputs.groups import RatedGroup, build_preferences
from reward.model.calibration import Calibration, fit_calibration, fit_tie_threshold, read_calibration
from reward.model.comparison import compare, outcome_probabilities, preference_probability
from reward.training.losses import preference_log_probability

DIMENSIONS = ("instruction_following", "visual_quality")
NAN = float("nan")


def test_only_strict_pairs_count_and_predicted_ties_have_a_rule() -> None:
    margin = np.array([2.0, -1.0, 0.0, 5.0, 5.0])
    label = np.array([1.0, 1.0, 1.0, NAN, 0.5])
    assert correctness(margin, label).tolist()[:3] == [1, 0, 0.5]
    assert np.isnan(correctness(margin, label)[3:]).all()
    assert pair_accuracy(margin, label) == 0.5
    assert pair_accuracy(margin, label, predicted_tie="wrong") == pytest.approx(1 / 3)
    assert np.isnan(pair_accuracy(np.array([1.0]), np.array([NAN])))


def pairs_of(overall: list[float], margin: list[float], sigma: list[float] | None = None, **changes: np.ndarray) -> LabelledPairs:
    """Pairs of sources of their own, both sides with the same sigma; dimensions like the overall score."""
    label, predicted, spread = np.array(overall), np.array(margin), np.array(sigma or [1.0] * len(overall))
    columns = {
        "overall": label,
        "dimensions": np.stack([label, label], axis=1),
        "overall_margin": predicted,
        "margins": np.stack([predicted, predicted], axis=1),
        "sigma_a": spread,
        "sigma_b": spread,
        "group": np.arange(len(label)),
        "source": np.arange(len(label)),
    }
    return LabelledPairs(**(columns | changes))


def test_an_identified_head_wins_its_own_dimension() -> None:
    labels = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    margins = np.array([[1.0, -1.0], [-1.0, 1.0], [1.0, 1.0]])
    pairs = pairs_of([1.0, 0.0, 1.0], [0.0, 0.0, 1.0], dimensions=labels, margins=margins)
    assert head_dimension_correctness(pairs).mean(0) == pytest.approx(np.array([[1, 1 / 3], [1 / 3, 1]]))
    both = pairs_of([1.0, 0.0, 1.0], [0.0, 0.0, 1.0], dimensions=labels, margins=margins[:, :1].repeat(2, 1))
    assert head_dimension_correctness(both).mean(0) == pytest.approx(np.array([[1, 1 / 3], [1, 1 / 3]]))


# ---- confidence


def test_calibration_error_by_hand() -> None:
    probability = np.array([0.9, 0.1, 0.9, 0.1, 0.62, 0.62])  # confidences .9 four times, .62 twice
    label = np.array([1.0, 0.0, 1.0, 1.0, 1.0, 0.0])  # right: yes, yes, yes, no; yes, no
    error = calibration_error(probability, label, np.arange(6))
    assert error is not None and error.error.value == pytest.approx(4 / 6 * 0.15 + 2 / 6 * 0.12)
    found = reliability(probability, label, np.arange(6))
    assert [(b.pairs, round(b.predicted, 2), b.observed.value) for b in found] == [(2, 0.62, 0.5), (4, 0.9, 0.75)]
    assert all(b.observed.low <= b.observed.value <= b.observed.high for b in found)
    assert calibration_error(np.array([0.7]), np.array([NAN]), np.zeros(1)) is None
    assert reliability(np.array([0.7]), np.array([NAN]), np.zeros(1)) == []


def test_certainty_is_in_the_last_bin() -> None:
    (last,) = reliability(np.array([1.0, 0.0, 0.96]), np.array([1.0, 0.0, 1.0]), np.arange(3))
    assert last.pairs == 3 and last.observed.value == 1.0


def test_an_error_of_calibration_is_judged_by_the_noise_it_would_have_anyway() -> None:
    """Sources of four alike pairs each. A calibrated model shows the noise; one that is 20 points too sure shows 20 points."""
    generator = np.random.default_rng(0)
    source = np.arange(800) // 4
    errors, noises, unbiased = [], [], 0
    for trial in range(40):
        probability = generator.uniform(0.5, 1.0, 200)[source]
        label = (generator.random(200)[source] < probability).astype(float)
        found = calibration_error(probability, label, source, resamples=200, seed=trial)
        assert found is not None
        errors.append(found.error.value)
        noises.append(found.noise)
        unbiased += found.overconfidence.low <= 0 <= found.overconfidence.high
    assert np.mean(noises) == pytest.approx(np.mean(errors), rel=0.1) and np.mean(errors) > 0.04
    assert unbiased >= 32
    wrong = calibration_error(np.full(400, 0.9), (np.arange(400) % 10 < 7).astype(float), np.arange(400), resamples=200)
    assert wrong is not None and wrong.noise < 0.05 < 0.15 < wrong.error.low < 0.2 < wrong.error.high
    assert wrong.overconfidence.value == pytest.approx(0.2)


def test_equal_confidence_is_shared_out_at_the_border() -> None:
    confidence = np.array([0.9, 0.6, 0.6, 0.6, 0.5])
    assert most_confident(confidence, 0.4) == pytest.approx([1, 1 / 3, 1 / 3, 1 / 3, 0])
    assert most_confident(confidence, 1.0).tolist() == [1, 1, 1, 1, 1]
    assert most_confident(np.zeros(4), 0.5).tolist() == [0.5] * 4


@settings(deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=30), st.sampled_from(SHARES))
def test_most_confident_takes_its_share_and_no_less_confident_pair_first(values: list[int], share: float) -> None:
    weights = most_confident(np.array(values, dtype=float), share)
    assert weights.sum() == pytest.approx(share * len(values))
    assert weights.min() >= 0 and weights.max() <= 1 + 1e-12
    for less, more in pairwise(np.argsort(values, kind="stable")):
        assert weights[less] <= weights[more] + 1e-12


def test_sigma_that_knows_where_the_model_is_wrong_adds_to_the_margin() -> None:
    """Half of the pairs have wide sigmas and orders that are a coin's; margins are all alike."""
    wide = np.arange(200) % 2 == 1
    label = np.where(wide & (np.arange(200) % 4 == 1), 0.0, 1.0)
    pairs = pairs_of(label.tolist(), [1.0] * 200, np.where(wide, 5.0, 0.1).tolist())
    found = measure_confidence(pairs, resamples=200)
    by_p, by_margin, by_sigma = (found.halves[name] for name in ("probability", "margin", "sigma"))
    assert by_p.confident.value == 1.0 and by_p.rest.value == 0.5 and by_sigma.difference.value == 0.5
    assert by_margin.difference.value == 0.0  # margins are equal, so their order says nothing
    assert found.added.value == 0.5 and found.added.low > 0.3
    curve = found.curves["probability"]
    assert [point.share for point in curve] == list(SHARES) and curve[-1].accuracy.value == pytest.approx(0.75)
    assert curve[0].accuracy.value == 1.0
    with pytest.raises(ValueError, match="at least two"):
        measure_confidence(pairs.where(np.arange(200) < 1))


def test_without_sigma_all_that_counts_is_the_margin() -> None:
    generator = np.random.default_rng(1)
    margin = generator.normal(size=300)
    pairs = pairs_of((generator.random(300) < 1 / (1 + np.exp(-3 * margin))).astype(float).tolist(), margin.tolist(), [0.0] * 300)
    found = measure_confidence(pairs, resamples=100)
    assert found.halves["probability"] == found.halves["margin"]
    assert found.added.value == found.added.low == found.added.high == 0.0
    assert found.halves["margin"].difference.low > 0.0
    assert found.halves["sigma"].difference.value == pytest.approx(0.0)


# ---- three outcomes


def test_the_tie_threshold_is_found_again() -> None:
    generator = np.random.default_rng(0)
    count, threshold = 20_000, 0.7
    margin, sigma = generator.normal(0, 2, count), generator.uniform(0.1, 1.5, (2, count))
    chances = outcome_probabilities(margin, *sigma, threshold=threshold)
    assert chances.sum(1) == pytest.approx(np.ones(count))
    drawn = (generator.random(count)[:, None] > chances.cumsum(1)).sum(1)
    label = np.array([1.0, NAN, 0.0])[drawn]
    assert fit_tie_threshold(margin, *sigma, label) == pytest.approx(threshold, abs=0.03)
    assert fit_tie_threshold(margin[drawn != 1], *sigma[:, drawn != 1], label[drawn != 1]) == 0.0
    assert fit_tie_threshold(np.array([0.3]), np.ones(1), np.ones(1), np.array([NAN])) > 5  # ties only: everything is one
    with pytest.raises(ValueError, match="no held-out pairs"):
        fit_tie_threshold(np.zeros(0), np.zeros(0), np.zeros(0), np.zeros(0))


@settings(deadline=None)
@given(st.floats(-5, 5), st.floats(0, 3), st.floats(0, 4))
def test_three_outcomes_are_symmetric_and_as_for_one_pair(margin: float, sigma: float, threshold: float) -> None:
    forward = outcome_probabilities(np.array([margin]), np.array([sigma]), np.array([1.0]), threshold=threshold)[0]
    backward = outcome_probabilities(np.array([-margin]), np.array([1.0]), np.array([sigma]), threshold=threshold)[0]
    assert forward == pytest.approx(backward[::-1])
    one = compare(margin, sigma, 1.0, threshold=threshold)
    assert (one.a_better, one.tie, one.b_better) == pytest.approx(tuple(forward))
    assert forward.min() >= 0 and forward.sum() == pytest.approx(1)


def test_three_way_accuracy_names_ties() -> None:
    """Threshold 2, no sigma: |margin| 5 is an order, 0.1 is a tie."""
    pairs = pairs_of([1.0, 0.0, 1.0, NAN, NAN], [5.0, -5.0, 0.1, 0.1, 5.0], [0.0] * 5)
    found = measure_three_way(pairs, threshold=2.0, bins=2, resamples=50)
    assert found.accuracy.value == pytest.approx(3 / 5)  # two orders and one tie
    assert found.never_tie.value == pytest.approx(3 / 5)  # three orders
    assert found.tie_share.value == pytest.approx(2 / 5)
    assert found.uninformed == pytest.approx(0.6 * np.log(0.3) + 0.4 * np.log(0.4))
    sure, near = 1 / (1 + np.exp(-3)), 1 / (1 + np.exp(1.9))  # sigmoid(5 - 2), sigmoid(0.1 - 2)
    tie, far = 1 - near - 1 / (1 + np.exp(2.1)), 1 - sure - 1 / (1 + np.exp(7))
    assert found.log_likelihood.value == pytest.approx(np.log([sure, sure, near, tie, far]).mean())
    unlikely, likely = found.ties
    assert (unlikely.pairs, likely.pairs) == (3, 2)
    assert unlikely.predicted == pytest.approx(far) and likely.predicted == pytest.approx(tie)
    assert unlikely.observed.value == pytest.approx(1 / 3) and likely.observed.value == pytest.approx(1 / 2)


def test_tie_bins_never_split_equal_predictions() -> None:
    pairs = pairs_of([1.0, NAN, 0.0, NAN], [0.0] * 4)
    (only,) = measure_three_way(pairs, threshold=1.0, resamples=50).ties
    assert only.pairs == 4 and only.observed.value == 0.5


# ---- intervals


def test_intervals_resample_sources_not_pairs() -> None:
    generator = np.random.default_rng(0)
    by_source = generator.random(40)
    once = clustered_interval(by_source, np.arange(40), seed=1)
    often = clustered_interval(by_source.repeat(25), np.arange(40).repeat(25), seed=1)
    for name in ("value", "low", "high"):
        assert getattr(often, name) == pytest.approx(getattr(once, name))  # repeating what a source says adds no knowledge
    naive = clustered_interval(by_source.repeat(25), np.arange(1000), seed=1)
    assert naive.high - naive.low < (once.high - once.low) / 3
    assert once.low < once.value < once.high and once == clustered_interval(by_source, np.arange(40), seed=1)


def test_any_statistic_and_nan_values() -> None:
    values, source = np.array([1.0, 0.0, 1.0]), np.array([0, 1, 1])
    mean = clustered_interval(np.array([1.0, NAN, 0.0, 1.0]), np.array([0, 0, 1, 1]), resamples=50)
    same = Bootstrap(resamples=50).of(lambda drawn: float(values[drawn].mean()), source)
    assert (mean.value, mean.low, mean.high) == pytest.approx((same.value, same.low, same.high)) and same.n == 3
    assert mean.value == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="no values"):
        clustered_interval(np.array([NAN]), np.array([0]))


@settings(deadline=None)
@given(st.floats(-20, 20), st.floats(0, 3), st.floats(0, 3))
def test_the_two_forms_of_the_probability_agree(margin: float, a: float, b: float) -> None:
    tensors = [torch.tensor(v, dtype=torch.float64) for v in (margin, a, 0.0, b)]
    expected = float(preference_log_probability(*tensors).exp())
    assert preference_probability(np.array(margin), np.array(a), np.array(b)) == pytest.approx(expected, abs=1e-9)


def png(value: int, size: tuple[int, int] = (8, 8)) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, (value, value, value)).save(buffer, "PNG")
    return buffer.getvalue()


def group(name: str, *scores: tuple[float, float], task: str = "") -> RatedGroup:
    rated = tuple(dict(zip(DIMENSIONS, score, strict=True)) for score in scores)
    return RatedGroup(
        source_id=name,
        source=png(100),
        instruction="brighten",
        candidate_ids=tuple(f"{name}{i}" for i in range(len(scores))),
        candidates=tuple(png(100 + 10 * i) for i in range(len(scores))),
        scores=rated,
        preferences=tuple(build_preferences(rated, DIMENSIONS)),
        task=task,
    )


def test_a_disentangled_tie_is_one_tied_pair_when_measured() -> None:
    tied = group("t", (4, 2), (3, 3), (1, 1))
    assert len(tied.preferences) == 4
    pairs = labelled_pairs([tied], from_scores([np.array([3.0, 2.0, 1.0])], 2))
    assert len(pairs.overall) == 3
    assert np.isnan(pairs.overall[0]) and pairs.overall[1:].tolist() == [1.0, 1.0]
    assert pairs.dimensions[0].tolist() == [1.0, 0.0]


def test_a_perfect_a_constant_and_a_reversed_score() -> None:
    groups = [group("x", (4, 4), (2, 3), (1, 1), task="add"), group("y", (1, 2), (3, 3), task="move")]
    truth = [np.array([sum(score.values()) for score in g.scores]) for g in groups]
    results = [
        evaluate(groups=groups, predictions=from_scores(scores, 2), dimensions=DIMENSIONS, resamples=50)
        for scores in (truth, constant_scores(groups), [-scores for scores in truth])
    ]
    assert [r.accuracy.value for r in results] == [1.0, 0.5, 0.0]
    assert [r.accuracy_ties_wrong.value for r in results] == [1.0, 0.0, 0.0]
    assert results[1].log_likelihood.value == pytest.approx(np.log(0.5))
    assert all(r.pairs == r.strict_pairs == 4 and set(r.by_task) == {"add", "move"} for r in results)
    found = [r.dimensions["visual_quality"] for r in results]
    assert [value and value.value for value in found] == [1.0, 0.5, 0.0]


def test_what_is_calibrated_is_measured_on_groups_that_calibration_has_not_seen() -> None:
    groups = [group("x", (4, 4), (2, 3), (3, 2)), group("y", (1, 2), (3, 3), (4, 4), (3, 4))]
    predictions = from_scores([np.array([3.0, 1.0, 1.0]), np.array([0.0, 2.0, 4.0, 4.0])], 2)
    measure = partial(evaluate, groups=groups, predictions=predictions, dimensions=DIMENSIONS, resamples=50)
    whole, half = measure(tie_threshold=0.5), measure(tie_threshold=0.5, calibrated_on={"y"})
    assert (whole.pairs, whole.strict_pairs, whole.unseen_pairs) == (9, 8, 9)
    assert (half.pairs, half.unseen_pairs) == (9, 3) and half.accuracy == whole.accuracy and half.confidence == whole.confidence
    assert whole.three_way is not None and whole.three_way.pairs == 9
    assert half.three_way is not None and half.three_way.pairs == 3 and half.three_way.tie_share.value == pytest.approx(1 / 3)
    assert sum(b.pairs for b in half.calibration_bins) == 2
    assert measure().three_way is None  # no threshold, no ties
    nothing = measure(tie_threshold=0.5, calibrated_on={"x", "y"})
    assert nothing.three_way is None and nothing.calibration_error is None and nothing.calibration_bins == []


def test_a_dimension_without_strict_pairs_has_no_accuracy() -> None:
    groups = [group("x", (4, 2), (3, 2), (1, 2))]
    result = evaluate(groups=groups, predictions=from_scores([np.array([3.0, 2.0, 1.0])], 2), dimensions=DIMENSIONS, resamples=50)
    assert result.dimensions["visual_quality"] is None and result.heads[0][1] is None
    assert result.dimensions["instruction_following"] is not None


def test_resampled_sources_are_whole_and_as_many() -> None:
    source = np.array([0, 0, 0, 1, 2, 2])
    draws = SourceDraws.of(source, resamples=500, seed=0)
    assert (draws.times.sum(1) == 3).all()
    counts = draws.totals(np.eye(6))  # how often each pair is in a resample
    assert (counts[:, 0] == counts[:, 1]).all() and (counts[:, 4] == counts[:, 5]).all()
    assert np.isnan(draws.means(np.ones((6, 1)), (source == 1)[:, None].astype(float))).any()  # a resample without source 1


def test_baselines_know_the_pixels_only() -> None:
    groups = [group("x", (1, 1), (2, 2), (3, 3))]
    assert closeness_scores(groups)[0].tolist() == [0.0, -10.0, -20.0]
    first, again, other = (random_scores(groups, seed=seed)[0].tolist() for seed in (1, 1, 2))
    assert first == again != other
    small, large = (Image.new("RGB", (side, side), (5, 5, 5)) for side in (4, 9))
    assert change_from_source(small, large) == 0.0


def test_isotonic_calibration_pools_violators() -> None:
    raw, rated = np.array([0.0, 1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0, 4.0])
    found = fit_calibration({"visual_quality": raw}, {"visual_quality": rated})
    chart = found.dimensions["visual_quality"]
    assert [chart(value) for value in (-5, 0, 1, 1.5, 2, 2.5, 3, 9)] == [1, 1, 2.5, 2.5, 2.5, 3.25, 4, 4]
    assert Calibration.model_validate_json(found.model_dump_json()) == found
    assert found.ratings == {"visual_quality": 4}


def test_a_damaged_calibration_is_one_sentence(tmp_path: Path) -> None:
    assert read_calibration(tmp_path) is None
    for content in (b"", b"{}", b'{"dimensions": {"visual_quality"', b"\xff"):
        (tmp_path / "calibration.json").write_bytes(content)
        with pytest.raises(ValueError, match=r"calibration\.json is damaged; restore it, or delete it: .* no Likert scores$"):
            read_calibration(tmp_path)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(-20, 20), st.integers(1, 4)), min_size=1, max_size=60))
def test_calibration_is_monotone_and_on_the_scale(points: list[tuple[int, int]]) -> None:
    raw, rated = (np.array(column, dtype=float) for column in zip(*points, strict=True))
    chart = fit_calibration({"d": raw}, {"d": rated}).dimensions["d"]
    values = [chart(value) for value in np.linspace(-25, 25, 101)]
    assert all(a <= b for a, b in pairwise(values))
    assert values[0] >= 1 and values[-1] <= 4
    assert np.mean([chart(value) for value in raw]) == pytest.approx(rated.mean())  # isotonic fits keep the mean


def test_calibration_needs_a_rating_per_mean() -> None:
    with pytest.raises(ValueError, match="visual_quality got 2 means and 1 ratings"):
        fit_calibration({"visual_quality": np.zeros(2)}, {"visual_quality": np.ones(1)})


def test_held_out_means_line_up_with_ratings() -> None:
    groups = [group("x", (4, 1), (2, 3)), group("y", (1, 2), (3, 4))]
    means, ratings = held_out_means(groups, from_scores([np.array([0.1, 0.2]), np.array([0.3, 0.4])], 2), DIMENSIONS)
    assert means["visual_quality"].tolist() == [0.1, 0.2, 0.3, 0.4]
    assert ratings["instruction_following"].tolist() == [4, 2, 1, 3] and ratings["visual_quality"].tolist() == [1, 3, 2, 4]


def test_groups_without_preferences_are_refused() -> None:
    bare = group("x", (1, 1), (2, 2))
    bare = RatedGroup(**{**vars(bare), "preferences": ()})
    with pytest.raises(ValueError, match="no preferences"):
        labelled_pairs([bare], from_scores([np.zeros(2)], 2))
