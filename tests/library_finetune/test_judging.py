"""Verdicts, benchmark means by the published conventions, and paired intervals."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from finetune.judging import FAILURES, BenchmarkItem, Judge, Means, Verdict, paired_bootstrap, paired_overall, summarise
from finetune.published import CN_FULL_BASE_V1_0, COLUMNS, TABLE_3

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


def ok(item_id: str, semantic: float, perceptual: float, task: str = "task") -> Verdict:
    return Verdict(item_id, task, "ok", semantic, perceptual)


def test_mean_over_tasks_is_unweighted_as_in_gedit_bench():
    verdicts = [ok(f"{task}{n}", mean, mean, task) for task, (count, mean) in GEDIT_TASKS.items() for n in range(count)]
    summary = summarise(verdicts)
    assert summary.items == summary.judged == 606
    assert summary.over_tasks.overall == pytest.approx(6.700, abs=5e-4)
    assert summary.over_items.overall == pytest.approx(6.759, abs=5e-4)
    assert summary.tasks["subject-remove"].overall == pytest.approx(6.51)


def test_overall_is_the_mean_of_roots():
    summary = summarise([ok("a", 9, 4), ok("b", 0, 10)])
    assert summary.over_items == Means(4.5, 7.0, 3.0)
    assert math.sqrt(4.5 * 7.0) == pytest.approx(5.61, abs=0.01)  # what it is not


def test_failures_are_counted_and_excluded_or_zero():
    verdicts = [ok("a", 8, 2, "x"), Verdict("b", "x", "refused"), ok("c", 9, 9, "y"), Verdict("d", "z", "api_error")]
    summary = summarise(verdicts)
    assert (summary.items, summary.judged) == (4, 2)
    assert summary.failures == {"refused": 1, "unparsable": 0, "api_error": 1, "missing": 0}
    assert summary.over_items == Means(8.5, 5.5, 6.5)
    assert summary.over_items_failures_zero == Means(4.25, 2.75, 3.25)
    assert summary.tasks == {"x": Means(8, 2, 4), "y": Means(9, 9, 9), "z": None}
    assert summary.over_tasks is None  # a task nobody judged has no mean, and so has the mean over tasks
    assert summary.over_tasks_failures_zero == Means(*(pytest.approx(value) for value in (13 / 3, 10 / 3, 11 / 3)))
    assert summary.thin_tasks == ("x", "z")


def test_a_task_with_nine_tenths_judged_is_not_thin():
    verdicts = [ok(str(n), 5, 5) for n in range(9)] + [Verdict("9", "task", "missing")]
    assert summarise(verdicts).thin_tasks == ()
    assert summarise([*verdicts, Verdict("10", "task", "missing")]).thin_tasks == ("task",)


def test_nothing_judged_and_nothing_given():
    summary = summarise([Verdict("a", "x", "missing")])
    assert summary.over_items is None and summary.over_items_failures_zero == Means(0, 0, 0)
    with pytest.raises(ValueError, match="no verdicts"):
        summarise([])
    with pytest.raises(ValueError, match="'a' was judged twice"):
        summarise([ok("a", 1, 1), ok("a", 2, 2)])


@pytest.mark.parametrize("scores", [(None, 5), (5, None), (-0.1, 5), (5, 10.1), (float("nan"), 5), (None, None)])
def test_ok_needs_two_scores_in_range(scores):
    with pytest.raises(ValueError, match=r"two scores in 0\.\.10"):
        Verdict("a", "x", "ok", *scores)


@pytest.mark.parametrize("status", FAILURES)
def test_failed_verdicts_carry_no_score(status):
    assert Verdict("a", "x", status).overall is None
    with pytest.raises(ValueError, match="has no scores"):
        Verdict("a", "x", status, 5, 5)


def test_unknown_status_is_refused():
    with pytest.raises(ValueError, match="'timeout' is none of"):
        Verdict("a", "x", "timeout")


SCORES = st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10), st.sampled_from("abc")), min_size=1, max_size=30)


@given(SCORES, st.randoms(use_true_random=False))
def test_summary_does_not_depend_on_order_and_stays_in_range(scores, random):
    verdicts = [ok(str(n), semantic, perceptual, task) for n, (semantic, perceptual, task) in enumerate(scores)]
    summary = summarise(verdicts)
    shuffled = verdicts[:]
    random.shuffle(shuffled)
    again = summarise(shuffled)
    assert again.over_items.overall == pytest.approx(summary.over_items.overall)
    assert again.over_tasks == summary.over_tasks
    for means in (summary.over_items, summary.over_tasks):
        assert -1e-9 <= means.overall <= (means.semantic_consistency + means.perceptual_quality) / 2 + 1e-9


def test_pairing_drops_items_that_one_system_failed_and_refuses_other_items():
    a = [ok("2", 4, 4), ok("1", 9, 1), Verdict("3", "task", "refused")]
    b = [ok("1", 4, 9), ok("2", 5, 5), ok("3", 10, 10)]
    first, second = paired_overall(a, b)
    assert first.tolist() == [3, 4] and second.tolist() == [6, 5]
    with pytest.raises(ValueError, match=r"judged for one system only, e\.g\. '3'"):
        paired_overall(a[:2], b)


def test_paired_bootstrap_agrees_with_the_normal_interval():
    rng = np.random.default_rng(0)
    a = rng.uniform(0, 10, 300)
    b = a + rng.normal(0.5, 1, 300)
    result = paired_bootstrap(a, b, seed=1)
    error = 1.96 * (b - a).std() / math.sqrt(300)
    assert result.mean == pytest.approx((b - a).mean())
    assert result.low == pytest.approx(result.mean - error, abs=0.02)
    assert result.high == pytest.approx(result.mean + error, abs=0.02)
    assert (result.items, result.resamples) == (300, 10_000)
    assert paired_bootstrap(a, b, seed=1) == result
    assert paired_bootstrap(b, a, seed=1).mean == -result.mean


def test_pairing_narrows_the_interval():
    """Two systems that differ by a constant: certain when paired, although the items vary widely."""
    a = np.random.default_rng(0).uniform(0, 9, 50)
    result = paired_bootstrap(a, a + 0.3, seed=0, resamples=1500)
    assert result.low == pytest.approx(0.3) and result.high == pytest.approx(0.3) and result.resamples == 1500


def test_paired_bootstrap_covers_the_truth():
    rng = np.random.default_rng(2)
    covered = 0
    for trial in range(200):
        difference = rng.normal(0.2, 1, 60)
        result = paired_bootstrap(np.zeros(60), difference, seed=trial, resamples=1000)
        covered += result.low <= 0.2 <= result.high
    assert 0.89 <= covered / 200 <= 0.99


def test_paired_bootstrap_refuses_unpaired_scores():
    for a, b in (([1.0], [1.0, 2.0]), ([], [])):
        with pytest.raises(ValueError, match="paired scores are needed"):
            paired_bootstrap(a, b, seed=0)


def test_published_rows_and_the_wrong_cell():
    """Table 3's figures that the paper's text repeats, and the base cell that equals another version's line."""
    base, full, top = (TABLE_3[row]["EN full"].overall for row in TABLE_3)
    assert (base, full, top) == (6.444, 6.780, 7.086)
    assert all(tuple(row) == COLUMNS for row in TABLE_3.values())
    shown = TABLE_3["Step1X-Edit"]["CN full"]
    assert shown.overall == 6.983 and CN_FULL_BASE_V1_0.overall == 6.658
    top_cn = TABLE_3["Step1X-Edit + ShareGPT-4o-Image, top 20K by EditReward"]["CN full"]
    assert top_cn.overall - CN_FULL_BASE_V1_0.overall == pytest.approx(0.343)
    assert top_cn.overall - shown.overall == pytest.approx(0.018)


def test_published_perceptual_quality_falls_against_the_base_in_every_column():
    """The caveat in the docstring, with v1.0's own line in the wrong cell's place."""
    base, *finetuned = TABLE_3.values()
    for column in COLUMNS:
        before = CN_FULL_BASE_V1_0 if column == "CN full" else base[column]
        assert all(row[column].perceptual_quality < before.perceptual_quality for row in finetuned)


def test_a_judge_is_anything_with_name_revision_and_judge():
    class CopyDetector:
        name, revision = "copy-detector", "1"

        def judge(self, item: BenchmarkItem, edited: np.ndarray) -> Verdict:
            changed = not np.array_equal(item.source, edited)
            return Verdict(item.item_id, item.task, "ok", 10.0 if changed else 0.0, 10.0)

    judge: Judge = CopyDetector()
    item = BenchmarkItem("a", "remove", "remove the cat", np.zeros((4, 4, 3), np.uint8))
    assert judge.judge(item, item.source).overall == 0
    assert judge.judge(item, item.source + 1).overall == 10
