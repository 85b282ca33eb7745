"""Verdicts, means of an editor's benchmark by the published conventions, and paired intervals."""

import math
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.evaluate_editor.summary import difference, mean_interval, summarise
from stages.evaluate_editor.verdict import HEADLINE, JudgedEdit, Status, Verdict, viescore

FAILURES = get_args(Status)[1:]

# GEdit-Bench: items per task (606 in each language) and the overall task means of Step1X-Edit on EN full, as printed in its
# report's radar figure (arXiv 2504.17761), where their mean is given as 6.70.
GEDIT_TASKS = {
    "background_change": (40, 6.55),
    "color_alter": (40, 6.54),
    "material_alter": (40, 6.20),
    "motion_change": (40, 6.48),
    "ps_human": (70, 6.79),
    "style_change": (60, 7.22),
    "subject-add": (60, 6.97),
    "subject-remove": (57, 6.51),
    "subject-replace": (60, 7.07),
    "text_change": (99, 6.92),
    "tone_transfer": (40, 6.45),
}


def ok(item_id: str, semantic: float, perceptual: float, task: str = "task") -> JudgedEdit:
    scores = dict(zip(HEADLINE, (semantic, perceptual), strict=True))
    return JudgedEdit(item_id, task, Verdict("ok", scores, viescore(semantic, perceptual)))


def failed(item_id: str, task: str, status: Status) -> JudgedEdit:
    return JudgedEdit(item_id, task, Verdict(status))


def figures(edits: list[JudgedEdit]) -> dict[str, Any]:
    return summarise(edits, seed=0, resamples=100)


def test_mean_over_tasks_is_unweighted_as_in_gedit_bench():
    found = figures([ok(f"{task}{n}", mean, mean, task) for task, (count, mean) in GEDIT_TASKS.items() for n in range(count)])
    assert found["n"] == 606 and found["failed"] == 0 and "thin_tasks" not in found
    assert found["over_tasks"] == pytest.approx(6.700, abs=5e-4)
    assert found["overall"] == pytest.approx(6.759, abs=5e-4)
    assert found["per_task"]["subject-remove"] == pytest.approx(6.51)


def test_overall_is_the_mean_of_roots():
    found = figures([ok("a", 9, 4), ok("b", 0, 10)])
    assert (found["semantic_consistency"], found["perceptual_quality"], found["overall"]) == (4.5, 7.0, 3.0)
    assert math.sqrt(4.5 * 7.0) == pytest.approx(5.61, abs=0.01)  # what it is not


def test_failures_are_counted_and_excluded_or_zero():
    found = figures([ok("a", 8, 2, "x"), failed("b", "x", "refused"), ok("c", 9, 9, "y"), failed("d", "z", "api_error")])
    assert (found["n"], found["failed"], found["failures"]) == (2, 2, {"refused": 1, "api_error": 1})
    assert (found["overall"], found["overall_failures_zero"]) == (6.5, 3.25)
    assert found["per_task"] == {"x": 4, "y": 9, "z": None}
    assert found["over_tasks"] is None  # a task nobody judged has no mean, and so has the mean over tasks
    assert found["over_tasks_failures_zero"] == pytest.approx(11 / 3)
    assert found["thin_tasks"] == ["x", "z"]


def test_a_task_with_nine_tenths_judged_is_not_thin():
    edits = [ok(str(n), 5, 5) for n in range(9)] + [failed("9", "task", "missing")]
    assert figures(edits)["thin_tasks"] == []
    assert figures([*edits, failed("10", "task", "missing")])["thin_tasks"] == ["task"]


def test_nothing_judged_and_an_item_judged_twice():
    found = figures([failed("a", "x", "missing")])
    assert found["overall"] is None and found["low"] is None and found["overall_failures_zero"] == 0
    with pytest.raises(ValueError, match="'a' was judged twice"):
        figures([ok("a", 1, 1), ok("a", 2, 2)])


@pytest.mark.parametrize("scores", [(None, 5), (5, None), (-0.1, 5), (5, 10.1), (float("nan"), 5)])
def test_ok_needs_scores_in_range(scores):
    with pytest.raises(ValueError, match=r"scores? in 0\.\.10|overall score"):
        Verdict("ok", dict(zip(HEADLINE, scores, strict=True)), 5.0)
    with pytest.raises(ValueError, match="an ok verdict needs"):
        Verdict("ok", {}, 5.0)
    with pytest.raises(ValueError, match="an ok verdict needs"):
        Verdict("ok", {"likeness": 5.0})


@pytest.mark.parametrize("status", FAILURES)
def test_failed_verdicts_carry_no_score(status):
    assert Verdict(status).overall is None
    with pytest.raises(ValueError, match="has no scores"):
        Verdict(status, {"likeness": 5.0}, 5.0)


def test_unknown_status_is_refused():
    with pytest.raises(ValueError, match="'timeout' of a verdict is none of"):
        Verdict("timeout")


SCORES = st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10), st.sampled_from("abc")), min_size=1, max_size=30)


@given(SCORES, st.randoms(use_true_random=False))
def test_summary_does_not_depend_on_order_and_stays_in_range(scores, random):
    edits = [ok(str(n), semantic, perceptual, task) for n, (semantic, perceptual, task) in enumerate(scores)]
    found = figures(edits)
    shuffled = edits[:]
    random.shuffle(shuffled)
    assert figures(shuffled) == found
    assert -1e-9 <= found["overall"] <= (found["semantic_consistency"] + found["perceptual_quality"]) / 2 + 1e-9


def test_pairing_drops_items_that_one_arm_failed_and_refuses_other_items():
    a = [ok("2", 4, 4), ok("1", 9, 1), failed("3", "task", "refused")]
    b = [ok("1", 4, 9), ok("2", 5, 5), ok("3", 10, 10)]
    found = difference(a, b, seed=0, resamples=100)
    assert (found.value, found.n) == (2.0, 2) and found.low == 1.0 and found.high == 3.0
    with pytest.raises(ValueError, match=r"judged for one arm only, e\.g\. '3'"):
        difference(a[:2], b, seed=0, resamples=100)


def test_the_interval_of_a_mean_agrees_with_the_normal_one():
    values = np.random.default_rng(0).normal(0.5, 1, 300)
    found = mean_interval(values, seed=1, resamples=10_000)
    error = 1.96 * values.std() / math.sqrt(300)
    assert found.value == pytest.approx(values.mean()) and found.n == 300
    assert found.low == pytest.approx(found.value - error, abs=0.02) and found.high == pytest.approx(found.value + error, abs=0.02)
    assert mean_interval(values, seed=1, resamples=10_000) == found
    assert mean_interval(np.array([3.0, math.nan]), seed=0, resamples=100).low == 3.0


def test_pairing_narrows_the_interval():
    """Two arms that differ by a constant: certain when paired, although the items vary widely."""
    scores = np.random.default_rng(0).uniform(0, 9, 50)
    a, b = ([ok(str(n), score + more, score + more) for n, score in enumerate(scores)] for more in (0.0, 0.3))
    found = difference(a, b, seed=0, resamples=1500)
    assert found.low == pytest.approx(0.3) and found.high == pytest.approx(0.3)


def test_the_interval_covers_the_truth():
    rng = np.random.default_rng(2)
    found = [mean_interval(rng.normal(0.2, 1, 60), seed=trial, resamples=1000) for trial in range(200)]
    assert 0.89 <= sum(one.low <= 0.2 <= one.high for one in found) / 200 <= 0.99
