"""Metrics, intervals, calibration and baselines on cases small enough to do by hand."""

from __future__ import annotations

import io
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from reward.baselines import change_from_source, closeness_scores, constant_scores, random_scores
from reward.calibration import Calibration, fit_calibration
from reward.evaluation import evaluate, from_scores, held_out_means
from reward.groups import RatedGroup
from reward.losses import preference_log_probability
from reward.metrics import (
    LabelledPairs,
    accuracy_by_confidence,
    clustered_interval,
    correctness,
    expected_calibration_error,
    head_dimension_table,
    labelled_pairs,
    pair_accuracy,
    preference_probability,
    reliability,
)
from reward.pairs import build_preferences

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


def test_an_identified_head_wins_its_own_dimension() -> None:
    labels = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    margins = np.array([[1.0, -1.0], [-1.0, 1.0], [1.0, 1.0]])
    pairs = LabelledPairs(labels[:, 0], labels, margins.mean(1), margins, np.full(3, 0.5), np.arange(3))
    assert head_dimension_table(pairs) == pytest.approx(np.array([[1, 1 / 3], [1 / 3, 1]]))
    both = LabelledPairs(labels[:, 0], labels, margins.mean(1), margins[:, :1].repeat(2, 1), np.full(3, 0.5), np.arange(3))
    assert head_dimension_table(both) == pytest.approx(np.array([[1, 1 / 3], [1, 1 / 3]]))


def test_calibration_error_by_hand() -> None:
    probability = np.array([0.9, 0.1, 0.9, 0.1, 0.6, 0.6])  # confidences .9 four times, .6 twice
    label = np.array([1.0, 0.0, 1.0, 1.0, 1.0, 0.0])  # right: yes, yes, yes, no; yes, no
    assert expected_calibration_error(probability, label) == pytest.approx(4 / 6 * 0.15 + 2 / 6 * 0.1)
    found = reliability(probability, label)
    assert [(round(b.low, 2), b.pairs, round(b.accuracy, 2)) for b in found] == [(0.6, 2, 0.5), (0.9, 4, 0.75)]
    assert np.isnan(expected_calibration_error(np.array([0.7]), np.array([NAN])))


def test_certainty_is_in_the_last_bin() -> None:
    (last,) = reliability(np.array([1.0, 0.0]), np.array([1.0, 0.0]))
    assert last.high == 1.0 and last.confidence == 1.0 and last.accuracy == 1.0


def test_the_confident_half() -> None:
    probability = np.array([0.99, 0.02, 0.55, 0.45])
    label = np.array([1.0, 0.0, 0.0, 0.0])
    assert accuracy_by_confidence(probability, label) == (1.0, 0.5)
    with pytest.raises(ValueError, match="at least two"):
        accuracy_by_confidence(probability[:1], label[:1])


def test_intervals_resample_sources_not_pairs() -> None:
    generator = np.random.default_rng(0)
    by_source = generator.random(40)
    once = clustered_interval(by_source, np.arange(40), seed=1)
    often = clustered_interval(by_source.repeat(25), np.arange(40).repeat(25), seed=1)
    assert often == once  # repeating what a source says adds no knowledge
    naive = clustered_interval(by_source.repeat(25), np.arange(1000), seed=1)
    assert naive.high - naive.low < (once.high - once.low) / 3
    assert once.low < once.estimate < once.high and once == clustered_interval(by_source, np.arange(40), seed=1)


def test_any_statistic_and_nan_values() -> None:
    values, source = np.array([1.0, NAN, 0.0, 1.0]), np.array([0, 0, 1, 1])
    mean = clustered_interval(values, source, resamples=50)
    assert mean == clustered_interval(values, source, resamples=50, statistic=lambda found: float(found.mean()))
    assert mean.estimate == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="no values"):
        clustered_interval(np.array([NAN]), np.array([0]))


@given(st.floats(-20, 20), st.floats(0, 3), st.floats(0, 3))
def test_the_two_forms_of_the_probability_agree(margin: float, a: float, b: float) -> None:
    tensors = [torch.tensor(v, dtype=torch.float64) for v in (margin, a, 0.0, b)]
    expected = float(preference_log_probability(*tensors).exp())
    assert preference_probability(np.float64(margin), np.float64(a), np.float64(b)) == pytest.approx(expected, abs=1e-12)


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
    assert [r.accuracy.estimate for r in results] == [1.0, 0.5, 0.0]
    assert all(r.pairs == r.strict_pairs == 4 and set(r.by_task) == {"add", "move"} for r in results)
    assert [r.dimensions["visual_quality"].estimate for r in results] == [1.0, 0.5, 0.0]


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
