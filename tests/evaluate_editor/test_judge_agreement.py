"""Agreement of two judges on the same edits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reward.evaluation.bootstrap import Bootstrap
from stages.evaluate_editor.agreement import agreements
from stages.evaluate_editor.systems import COPY

BOOTSTRAP = Bootstrap(200)
SYSTEMS = ("base", "full", "selected")


def rows(judge: str, scores: np.ndarray, **changed: Any) -> list[dict[str, Any]]:
    """Verdicts on [item, system]; NaN is a failed call."""
    return [
        {
            "item_id": f"i{item}",
            "language": "en",
            "arm": name,
            "edit_id": f"{item} {name}",
            "judge_revision": judge,
            "overall": None if np.isnan(score) else float(score),
            "status": "unparsable" if np.isnan(score) else "ok",
            **changed,
        }
        for item, of_item in enumerate(scores)
        for name, score in zip(SYSTEMS, of_item, strict=True)
    ]


def test_judges_that_agree_and_that_contradict() -> None:
    scores = np.random.default_rng(0).uniform(0, 9, (30, 3)) + np.array([0, 0.3, 0.6])
    (same,) = agreements(rows("a", scores) + rows("b", scores + 0.4), BOOTSTRAP)
    assert (same.a, same.b, same.edits, same.failed) == ("a", "b", 90, 0)
    assert same.spearman.value == pytest.approx(1) and same.pairs.value == same.outcomes.value == same.systems.value == 1
    assert same.offset.value == pytest.approx(0.4) and same.offset.low == pytest.approx(0.4)
    (against,) = agreements(rows("a", scores) + rows("b", 10 - scores), BOOTSTRAP)
    assert against.spearman.value == pytest.approx(-1) and against.pairs.value == 0 and against.systems.value == -1


def test_ties_are_an_outcome_and_no_preference() -> None:
    a = np.array([[1.0, 2, 3], [1, 2, 3], [4, 4, 4], [1, 2, 2]])
    b = np.array([[1.0, 2, 3], [3, 2, 1], [4, 4, 4], [1, 1, 2]])
    (found,) = agreements(rows("a", a) + rows("b", b), BOOTSTRAP)
    # pairs of the four items, both with a preference: 3 the same; 3 opposite; none; one the same
    assert found.pairs.value == pytest.approx(4 / 7) and found.pairs.n == 7
    assert found.outcomes.value == pytest.approx((3 + 0 + 3 + 1) / 12) and found.outcomes.n == 12
    assert found.pairs.low is not None and found.pairs.high is not None and found.pairs.low < found.pairs.value < found.pairs.high


def test_a_noisy_judge_is_between_and_failures_are_counted() -> None:
    rng = np.random.default_rng(1)
    scores = rng.uniform(0, 8, (60, 3)) + np.array([0, 0.5, 1])
    noisy = scores + rng.normal(0, 2, scores.shape)
    noisy[:6, 0] = np.nan
    (found,) = agreements(rows("a", scores) + rows("b", noisy), BOOTSTRAP)
    assert (found.edits, found.failed) == (174, 6)
    assert 0.6 < found.spearman.value < 0.95 and 0.6 < found.pairs.value < 0.95
    assert found.spearman.low is not None and found.spearman.low < found.spearman.value < (found.spearman.high or 0)


def test_three_judges_make_three_comparisons_and_bounds_are_left_out() -> None:
    scores = np.random.default_rng(2).uniform(0, 9, (5, 3))
    every = rows("a", scores) + rows("b", scores) + rows("c", scores)
    assert [(one.a, one.b) for one in agreements(every, BOOTSTRAP)] == [("a", "b"), ("a", "c"), ("b", "c")]
    copies = rows("a", scores[:, :3], arm=COPY) + rows("b", scores, arm=COPY)
    with pytest.raises(ValueError, match="the verdicts are of no judge alone"):
        agreements(copies, BOOTSTRAP)


def test_one_judge_and_other_images() -> None:
    scores = np.ones((2, 3))
    with pytest.raises(ValueError, match=r"the verdicts are of a alone; name another one in evaluate_editor\.further_judges"):
        agreements(rows("a", scores), BOOTSTRAP)
    with pytest.raises(ValueError, match="a and b have judged no edit in common"):
        agreements(rows("a", scores) + rows("b", scores, edit_id="other"), BOOTSTRAP)
    (constant,) = agreements(rows("a", scores) + rows("b", scores), BOOTSTRAP)
    assert not constant.spearman.defined and not constant.pairs.defined and constant.outcomes.value == 1
