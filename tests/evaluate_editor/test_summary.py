"""Verdicts, means of an editor's benchmark by the published conventions, and paired intervals."""

import math
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.evaluate_editor.items import gedit_bench
from stages.evaluate_editor.summary import Convention, difference, interval, summarise, wins
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


BY_ITEMS = Convention("items", resamples=100)
BY_TASKS = Convention("tasks", resamples=100)


def figures(edits: list[JudgedEdit], convention: Convention = BY_ITEMS) -> dict[str, Any]:
    return summarise(edits, convention)


@pytest.mark.parametrize("averaging", ["items", "tasks"])
def test_mean_over_tasks_is_unweighted_as_in_gedit_bench(averaging):
    edits = [ok(f"{task}{n}", mean, mean, task) for task, (count, mean) in GEDIT_TASKS.items() for n in range(count)]
    assert {task: count for task, (count, _) in GEDIT_TASKS.items()} == gedit_bench.TASKS
    found = figures(edits, Convention(averaging, tuple(GEDIT_TASKS), 100))
    assert found["n"] == 606 and found["failed"] == 0 and "thin_tasks" not in found
    assert found["over_tasks"] == pytest.approx(6.700, abs=5e-4)
    assert found["over_items"] == pytest.approx(6.759, abs=5e-4)
    assert (found["overall"] == found[f"over_{averaging}"] and found["low"] < found["high"]) or averaging == "tasks"
    assert found["semantic_consistency"] == pytest.approx(found["overall"])
    assert found["per_task"]["subject-remove"] == pytest.approx(6.51)


def test_a_task_of_the_benchmark_without_items_leaves_no_overall():
    edits = [ok(f"{task}{n}", 5, 5, task) for task in GEDIT_TASKS for n in range(3) if task != "ps_human"]
    found = figures(edits, Convention("tasks", tuple(GEDIT_TASKS), 100))
    assert found["overall"] is None and found["low"] is None and found["over_items"] is None and found["semantic_consistency"] is None
    assert found["thin_tasks"] == ["ps_human"] and found["per_task"]["ps_human"] is None and found["failed"] == 0
    assert figures(edits, BY_TASKS)["overall"] == pytest.approx(5)


def test_overall_is_the_mean_of_roots():
    found = figures([ok("a", 9, 4), ok("b", 0, 10)])
    assert (found["semantic_consistency"], found["perceptual_quality"], found["overall"]) == (4.5, 7.0, 3.0)
    assert math.sqrt(4.5 * 7.0) == pytest.approx(5.61, abs=0.01)  # what it is not


def test_failures_are_counted_and_excluded_or_zero():
    found = figures([ok("a", 8, 2, "x"), failed("b", "x", "refused"), ok("c", 9, 9, "y"), failed("d", "z", "api_error")])
    assert (found["n"], found["failed"], found["failures"]) == (2, 2, {"refused": 1, "api_error": 1})
    assert found["overall"] is None and found["over_items"] is None and found["over_tasks"] is None
    assert found["overall_failures_zero"] == 3.25
    assert found["per_task"] == {"x": 4, "y": 9, "z": None}
    assert found["over_tasks_failures_zero"] == pytest.approx(11 / 3)
    assert found["thin_tasks"] == ["x", "z"]


def test_a_task_with_nine_tenths_judged_is_not_thin():
    edits = [ok(str(n), 5, 5) for n in range(9)] + [failed("9", "task", "missing")]
    assert figures(edits)["thin_tasks"] == [] and figures(edits)["overall"] == 5 and figures(edits)["overall_failures_zero"] == 4.5
    assert figures([*edits, failed("10", "task", "missing")])["thin_tasks"] == ["task"]


def test_nothing_judged_and_an_item_judged_twice():
    found = figures([failed("a", "x", "missing")])
    assert found["overall"] is None and found["low"] is None and found["overall_failures_zero"] == 0
    with pytest.raises(ValueError, match="'a' was judged twice in en"):
        figures([ok("a", 1, 1), ok("a", 2, 2)])
    both = [ok("a", 4, 4), replace(ok("a", 6, 6), language="cn")]  # the same item in two languages is two items
    assert figures(both)["overall"] == 5 and difference(both, both, BY_ITEMS).value == 0


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


def test_pairing_drops_items_that_one_system_failed_and_refuses_other_items():
    same = [ok(f"same{n}", 3, 3) for n in range(18)]
    a = [*same, ok("2", 4, 4), ok("1", 9, 1), failed("3", "task", "refused")]
    b = [ok("1", 4, 9), ok("2", 5, 5), ok("3", 10, 10), *same]
    found = difference(a, b, BY_ITEMS)
    assert (found.value, found.n) == (pytest.approx(4 / 20), 20)
    assert wins(a, b, BY_ITEMS) == {"task": [2, 18, 0]} and wins(b, a, BY_ITEMS) == {"task": [0, 18, 2]}
    with pytest.raises(ValueError, match=r"judged for one system only, e\.g\. '3'"):
        difference(a[:-1], b, BY_ITEMS)
    thin = difference(a[-3:], b[:3], BY_ITEMS)
    assert not thin.defined and thin.note == "less than 90% of task was judged for both"


def test_the_interval_of_a_mean_agrees_with_the_normal_one():
    values = np.random.default_rng(0).normal(0.5, 1, 300)
    convention = Convention("items", resamples=10_000, seed=1)
    found = interval([values], convention)
    error = 1.96 * values.std() / math.sqrt(300)
    assert found.value == pytest.approx(values.mean()) and found.n == 300
    assert found.low == pytest.approx(found.value - error, abs=0.02) and found.high == pytest.approx(found.value + error, abs=0.02)
    assert interval([values], convention) == found
    alone = interval([np.array([3.0, math.nan])], BY_ITEMS)
    assert (alone.value, alone.low, alone.high) == (3.0, None, None)  # one item has no spread
    assert not interval([values, np.array([math.nan])], BY_ITEMS).defined


def test_items_are_resampled_within_tasks():
    """Two tasks of very different sizes and spreads: the error of the mean of means by the textbook, which the one of all items is not."""
    rng = np.random.default_rng(3)
    groups = [rng.normal(2, 0.5, 400), rng.normal(8, 2, 25)]
    found = interval(groups, Convention("tasks", resamples=5000))
    error = 1.96 * math.sqrt(sum(group.var() / len(group) for group in groups)) / 2
    assert found.value == pytest.approx((groups[0].mean() + groups[1].mean()) / 2) and found.n == 425
    assert (found.high - found.low) / 2 == pytest.approx(error, rel=0.06)
    single = interval([groups[0], np.array([6.0])], Convention("tasks", resamples=2000))
    assert single.value == pytest.approx((groups[0].mean() + 6) / 2) and single.low is None


def test_pairing_narrows_the_interval():
    """Two systems that differ by a constant: certain when paired, although the items vary widely."""
    scores = np.random.default_rng(0).uniform(0, 9, 50)
    a, b = ([ok(str(n), score + more, score + more, "xy"[n % 2]) for n, score in enumerate(scores)] for more in (0.0, 0.3))
    for convention in (BY_ITEMS, BY_TASKS):
        found = difference(a, b, convention)
        assert found.low == pytest.approx(0.3) and found.high == pytest.approx(0.3)


def test_the_difference_is_of_the_headline():
    """b is better by 1 on the large task and worse by 1 on the small one: 0 over tasks, not over items."""
    a = [ok(f"{task}{n}", 5, 5, task) for task, count in (("x", 30), ("y", 10)) for n in range(count)]
    b = [ok(edit.item_id, *([6, 6] if edit.task == "x" else [4, 4]), edit.task) for edit in a]
    assert difference(a, b, BY_TASKS).value == 0 and difference(a, b, BY_ITEMS).value == 0.5
    assert wins(a, b, BY_TASKS) == {"x": [30, 0, 0], "y": [0, 0, 10]}


def test_the_interval_covers_the_truth():
    rng = np.random.default_rng(2)
    found = [interval([rng.normal(0.2, 1, 60)], Convention("items", resamples=1000, seed=trial)) for trial in range(200)]
    assert 0.89 <= sum(one.low <= 0.2 <= one.high for one in found) / 200 <= 0.99
