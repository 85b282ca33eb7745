"""Profiles of annotators and their results on gold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from panels import panel_of, rows_of

from stages.annotate.agreement.new_raters import pairs_within_items
from stages.annotate.config import ExamRules
from stages.annotate.quality.profiles import Profile, profiles
from stages.annotate.ratings.gold import gold_accuracy, gold_cells

LEVELS = [1.0, 2.0, 3.0, 4.0]


def found(scores: dict[str, Any], **settings: Any) -> dict[str, Profile]:
    table = rows_of(scores)
    return {p.annotator: p for p in profiles(table, LEVELS, **({"window": 25, "least": 2, "seed": 0} | settings)) if p.dimension == "x"}


def test_severity_spread_and_kappa_by_hand() -> None:
    groups = {f"g{n}": {"ann": {"x": [4, 3, 2]}, "bob": {"x": [3, 2, 1]}} for n in range(4)}
    groups["alone"] = {"ann": {"x": [1, 1, 1]}}
    ann, bob = (found(groups)[name] for name in ("ann", "bob"))
    assert (ann.severity.value, bob.severity.value) == (1.0, -1.0)
    assert (ann.severity.low, ann.severity.high) == (1.0, 1.0), "all groups are alike"
    assert ann.kappa.value == pytest.approx(1 - 9 / 21, abs=1e-6), "observed 1, by chance 21 / 9"
    assert ann.groups == 5 and ann.compared_groups == 4 and ann.ratings == 15
    assert ann.equal_groups == 0.2 and bob.equal_groups == 0
    assert ann.spread_ratio == 1.0 and bob.spread == pytest.approx(np.std([1, 2, 3]))


def test_kappa_of_an_annotator_is_cohens() -> None:
    """Own levels 1 2 2 4, others' 1 2 3 4: 1 - 4 * sum(w n) / sum(w row column) = 1 - 4 * 1 / 30."""
    scores = {f"g{i}": {"ann": {"x": [own]}, "bob": {"x": [other]}} for i, (own, other) in enumerate([(1, 1), (2, 2), (2, 3), (4, 4)])}
    own, other = np.array([1, 2, 2, 4]), np.array([1, 2, 3, 4])
    by_chance = (np.subtract.outer(own, other) ** 2).sum() / 4
    assert found(scores)["ann"].kappa.value == pytest.approx(1 - 1 / by_chance, abs=1e-6)


def test_who_always_gives_one_score_has_kappa_zero() -> None:
    rng = np.random.default_rng(0)
    scores = {f"g{n}": {"ann": {"x": [3, 3, 3]}, "bob": {"x": rng.integers(1, 5, 3).tolist()}} for n in range(20)}
    ann = found(scores)["ann"]
    assert ann.kappa.value == 0.0 and ann.spread == 0.0 and ann.equal_groups == 1.0 and ann.spread_ratio == 0.0


def test_who_rated_alone_is_not_compared() -> None:
    ann = found({"g": {"ann": {"x": [1, 4]}}})["ann"]
    assert not ann.severity.defined and ann.kappa.note == "nobody else rated the same" and ann.drift is None


def test_drift_compares_the_first_and_the_newest_groups_in_time() -> None:
    scores = {f"g{n:02}": {"ann": {"x": [2 + (n >= 10)]}, "bob": {"x": [2]}} for n in range(20)}
    assert found(scores, window=5, least=5)["ann"].drift == 1.0
    assert found(scores, window=5, least=5)["bob"].drift == -1.0
    assert found(scores, window=25, least=11)["ann"].drift is None, "ten groups at each end are too few"
    table = rows_of(scores)
    backwards = [f"2025-01-01T00:00:{59 - int(name[1:]):02}+00:00" for name in table["source_id"].to_pylist()]
    table = table.set_column(table.schema.get_field_index("rated_at"), "rated_at", [backwards])
    drifts = {p.annotator: p.drift for p in profiles(table, LEVELS, window=5, least=5, seed=0)}
    assert drifts["ann"] == -1.0, "the clock counts, not the order of the ledger"


def test_pace_is_the_time_of_a_group_over_the_median_annotator() -> None:
    table = rows_of({"g": {name: {"x": [1, 2]} for name in ("ann", "bob", "cat")}})
    seconds = [{"ann": 1.0, "bob": 5.0, "cat": None}[name] for name in table["annotator"].to_pylist()]
    table = table.set_column(table.schema.get_field_index("seconds"), "seconds", [seconds]).cast(table.schema)
    by_name = {p.annotator: p for p in profiles(table, LEVELS, window=5, least=5, seed=0)}
    assert by_name["ann"].seconds == 2.0 and by_name["ann"].pace == pytest.approx(2 / 6, abs=1e-6)
    assert by_name["cat"].seconds is None and by_name["cat"].pace is None


def test_pairs_within_items_are_all_ordered_pairs() -> None:
    panel = panel_of(np.array([[1.0, 2], [3, np.nan], [4, 2]]))
    own, other = pairs_within_items(panel)
    named = sorted(zip(panel.item[own].tolist(), panel.rater[own].tolist(), panel.rater[other].tolist(), strict=True))
    assert named == [(0, 0, 1), (0, 0, 2), (0, 1, 0), (0, 1, 2), (0, 2, 0), (0, 2, 1), (1, 0, 2), (1, 2, 0)]


def test_gold_is_where_the_experts_agree() -> None:
    table = rows_of(
        {
            "g": {"e1": {"x": [4, 1, 2]}, "e2": {"x": [3, 4, 2]}, "e3": {"x": [4, 2, 2]}, "ann": {"x": [3, 1, 4]}},
            "h": {"e1": {"x": [1]}, "e2": {"x": [1]}, "ann": {"x": [1]}},
        }
    )
    experts = ("e1", "e2", "e3")
    gold = gold_cells(table, experts, 3, LEVELS)
    assert gold == {("g0", "x"): (3.0, 4.0, 4.0), ("g2", "x"): (2.0, 2.0, 2.0)}, "g1: three levels apart; h0: two experts"
    result = gold_accuracy(table, gold, experts, LEVELS)
    assert list(result) == [("ann", "x")]
    ann = result["ann", "x"]
    assert (ann.groups, ann.cells, ann.exact, ann.within_one) == (1, 2, 0.5, 0.5)
    assert ann.severity == pytest.approx((3 - 11 / 3 + 2) / 2, abs=1e-6)


def test_an_exam_is_passed_by_agreeing_with_gold() -> None:
    rng = np.random.default_rng(2)
    truth = rng.integers(1, 5, (12, 7))
    experts = {f"e{n}": truth for n in range(3)}
    close = np.where(rng.random(truth.shape) < 0.85, truth, np.clip(truth + rng.choice([-1, 1], truth.shape), 1, 4))
    takers = {"close": close, "always-three": np.full_like(truth, 3), "lenient": np.clip(truth + 1, 1, 4)}
    table = rows_of({f"g{n}": {name: {"x": scores[n].tolist()} for name, scores in (experts | takers).items()} for n in range(12)})
    result = gold_accuracy(table, gold_cells(table, list(experts), 3, LEVELS), list(experts), LEVELS)
    assert {name: entry.passes(ExamRules()) for (name, _), entry in result.items()} == {
        "close": True,
        "always-three": False,
        "lenient": False,
    }
