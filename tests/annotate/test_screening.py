"""Removed annotators, annotators who need attention, the re-annotation queue: a simulated project with known faults, and each rule by
itself.
"""

from __future__ import annotations

import math
import re
from typing import get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from panels import panel_of, rows_of
from rated_run import make_run, rating_task_of
from simulated_project import Rater, project

from reward.evaluation.estimate import Estimate
from stages.annotate.config import ExamRules, QualityConfig, ReannotationRules, RemovalRules, Round, Target
from stages.annotate.quality.figures import checked_targets, met, of_round, overlap
from stages.annotate.quality.outliers import outlying_raters
from stages.annotate.quality.profiles import Profile
from stages.annotate.quality.queues import queues
from stages.annotate.quality.screening import disagreement, screen
from stages.annotate.ratings.rating_task import RANKING, ROUNDS, level_width

LEVELS = [1.0, 2.0, 3.0, 4.0]
PEOPLE = {f"a{n:02}": Rater() for n in range(16)}
FAULTY = {
    "clicker": Rater(kind="random"),
    "three": Rater(kind="three"),
    "drifting": Rater(drift=0.9),
    "lenient": Rater(offset=0.6),
}


def test_a_project_with_four_faulty_annotators() -> None:
    ratings = project(PEOPLE | FAULTY, groups=1000, raters_per_group=(2,), candidates=5)
    found = screen(ratings, LEVELS, QualityConfig(), seed=0)
    assert sorted(found.removed) == ["clicker", "three"]
    assert all("its upper limit is below 0.4" in " ".join(found.statuses[name].reasons) for name in found.removed)
    drifting, lenient = found.statuses["drifting"], found.statuses["lenient"]
    assert drifting.status == lenient.status == "attention", "severity cancels inside a group: nobody goes for it"
    assert any("drifted by +0." in reason for reason in drifting.reasons) and any("lenient by 0." in reason for reason in lenient.reasons)
    assert {found.statuses[name].status for name in PEOPLE} == {"good"}, "honest partners of a clicker stay"


def test_random_and_constant_raters_are_found_on_fifteen_groups() -> None:
    names = PEOPLE | {name: FAULTY[name] for name in ("clicker", "three")}
    ratings = project(names, groups=153, raters_per_group=(2,))
    found = screen(ratings, LEVELS, QualityConfig(), seed=0)
    groups = {name: len(set(ratings.filter(pc.equal(ratings["annotator"], name))["source_id"].to_pylist())) for name in names}
    assert all(15 <= groups[name] <= 19 for name in ("clicker", "three"))
    assert sorted(found.removed) == ["clicker", "three"]
    found = screen(ratings, LEVELS, QualityConfig(experts=["clicker"]), seed=0)
    assert found.removed == ["three"] and found.statuses["clicker"].status == "expert"


def test_nobody_is_judged_on_few_groups() -> None:
    ratings = project({"ann": Rater(), "clicker": FAULTY["clicker"]}, groups=14, raters_per_group=(2,))
    found = screen(ratings, LEVELS, QualityConfig(), seed=0)
    assert {entry.status for entry in found.statuses.values()} == {"too few groups"}
    assert found.statuses["ann"].reasons == ("14 shared groups, 15 needed",)


@pytest.mark.parametrize("high, groups, removed", [(0.39, 15, True), (0.41, 15, False), (0.39, 14, False), (None, 15, False)])
def test_kappa_removes_where_its_upper_limit_is_low_on_enough_groups(high: float | None, groups: int, removed: bool) -> None:
    kappa, none = Estimate(0.2, 0.1, high), Estimate(math.nan)
    profile = Profile("ann", "quality", 90, 15, groups, 2.5, 1.0, 1.0, none, kappa, none, None, 0.0, None)
    assert bool(disagreement([profile], QualityConfig())) is removed


def test_gold_and_exam_remove() -> None:
    experts = {f"e{n}": Rater(noise=0.15) for n in range(3)}
    people = {"good": Rater(noise=0.2), "clicker": FAULTY["clicker"]}
    hidden = project(experts | people, groups=40, raters_per_group=(5,), seed=1)
    config = QualityConfig(experts=tuple(experts), least_groups=1000)
    found = screen(hidden, LEVELS, config, seed=0)
    assert found.removed == ["clicker"] and "on gold at most one level off, below 0.8" in found.statuses["clicker"].reasons[0]
    assert found.statuses["e0"].status == "expert" and len(found.gold_cells) > 300
    taken = hidden.filter(pc.is_in(hidden["annotator"], pa.array(list(people))))
    exam = taken.set_column(taken.schema.get_field_index("round"), "round", [["exam"] * len(taken)])
    table = pa.concat_tables([hidden.filter(pc.is_in(hidden["annotator"], pa.array(list(experts)))), exam])
    examined = screen(table, LEVELS, config, seed=0)
    assert examined.removed == ["clicker"] and "failed the exam (kappa" in examined.statuses["clicker"].reasons[0]
    assert examined.exam["good", "visual_quality"].passes(ExamRules())
    lax = config.model_copy(update={"remove": RemovalRules(failed_exam=False)})
    assert screen(table, LEVELS, lax, seed=0).removed == []


def test_experts_who_rated_nothing_are_a_mistake() -> None:
    ratings = project({"ann": Rater(), "bob": Rater()}, groups=2, raters_per_group=(2,))
    with pytest.raises(ValueError, match=r"names 'eve', who rated nothing; annotators are ann, bob"):
        screen(ratings, LEVELS, QualityConfig(experts=("eve",)), seed=0)


@pytest.mark.parametrize("rule", ["two-sd", "bt500"])
@pytest.mark.parametrize("raters", [3, 5])
def test_rules_of_deviations_are_refused_below_six_raters(rule: str, raters: int) -> None:
    ratings = project({f"a{n}": Rater() for n in range(raters)}, groups=20, raters_per_group=(raters,))
    config = QualityConfig(remove=RemovalRules.model_validate({"outliers": rule}))
    largest = f"{(raters - 1) / math.sqrt(raters):.2f}"
    with pytest.raises(ValueError, match=rf"{rule}, but no candidate was rated by more than {raters} .* = {largest} .*can never remove"):
        screen(ratings, LEVELS, config, seed=0)


def test_the_largest_deviation_among_n_scores() -> None:
    """The bound in the refusal is reached by one score against n - 1 equal ones; five raters stay below 2, six pass it."""
    for n in (3, 5, 6, 15):
        scores = np.array([1.0] * (n - 1) + [4.0])
        assert (scores[-1] - scores.mean()) / scores.std(ddof=1) == pytest.approx((n - 1) / math.sqrt(n))
    one = panel_of(np.array([[1.0]] * 5 + [[4.0]]))
    assert outlying_raters(one, "two-sd", 0.05) == {5: 1.0}


def test_bt500_rejects_who_errs_both_ways_and_keeps_who_is_strict() -> None:
    rng = np.random.default_rng(0)
    scores = 3 + rng.normal(0, 1, (1, 80)) + rng.normal(0, 0.4, (20, 80))
    scores[0] += np.where(np.arange(80) % 2, 0.8, -0.8)
    scores[1] += 0.8
    rejected = outlying_raters(panel_of(scores), "bt500", 0.05)
    assert list(rejected) == [0], "a shifted rater has outliers on one side only"
    assert set(outlying_raters(panel_of(scores), "two-sd", 0.05)) >= {0, 1}


def test_bt500_takes_the_wider_bound_where_scores_are_not_normal() -> None:
    """One score against 24 equal ones: sqrt(20) = 4.47 SD count, and (n - 1) / sqrt(n) = 4.8 is beyond; with 20 raters 4.25 is not."""
    for raters, found in ((25, {0: 1.0}), (20, {})):
        scores = np.full((raters, 2), 2.0)
        scores[0] = [5.0, -1.0]
        assert outlying_raters(panel_of(scores), "bt500", 0.05) == found


def test_what_is_rated_again(tmp_path: object) -> None:
    work = rating_task_of(make_run(tmp_path / "run", groups=5))  # ty: ignore[unsupported-operator]
    lone, differing, alike, three, dropped = sorted(work.sampled)
    said = {
        lone: {"ann": 4},
        differing: {"ann": 1, "bob": 3},
        alike: {"ann": 2, "bob": 2},
        three: {"ann": 1, "bob": 2, "cat": 3},
        dropped: {},
    }
    scores = {
        group: {name: {dimension: [score] * len(work.sampled[group]) for dimension in work.dimensions} for name, score in by_name.items()}
        for group, by_name in said.items()
    }
    table = rows_of(scores)
    names = {f"{group}{place}": candidate for group in said for place, candidate in enumerate(sorted(work.sampled[group]))}
    candidates = [names[name] for name in table["candidate_id"].to_pylist()]
    table = table.set_column(table.schema.get_field_index("candidate_id"), "candidate_id", [candidates])
    rated = {group: set(by_name) for group, by_name in said.items()} | {dropped: {"clicker"}}
    groups, disputed = queues(table, rated, work, ReannotationRules())
    assert [(row.group_id, row.reason, row.raters) for row in groups] == [
        (differing, "raters-differ", ("ann", "bob")),
        (dropped, "no-accepted-rater", ("clicker",)),
    ]
    assert "differ by 2.00 levels on average, at most 0.9 wanted" in groups[0].message
    assert len(disputed) == len(work.sampled[three]) * 2 and disputed[0].scores == (1.0, 2.0, 3.0)
    settled = table.slice(0, 1).to_pylist()[0] | {
        "candidate_id": disputed[0].candidate_id, "dimension": disputed[0].dimension, "annotator": "eve", "round": "adjudication",
    }  # fmt: skip
    _, left = queues(pa.concat_tables([table, pa.Table.from_pylist([settled], schema=table.schema)]), rated, work, ReannotationRules())
    assert left == disputed[1:], "an adjudicated cell leaves the queue"


def test_rounds_that_a_target_may_name_are_the_rounds_of_scores() -> None:
    assert {*get_args(Round), RANKING} == set(ROUNDS)


def test_sets_of_raters_that_nothing_connects() -> None:
    found = overlap({"g": {"ann", "bob"}, "h": {"bob", "cat"}, "i": {"dan", "eve"}, "j": {"fay"}})
    assert found["connected_sets"] == [["ann", "bob", "cat"], ["dan", "eve"], ["fay"]]
    assert (found["groups"], found["groups_rated_twice"]) == (4, 3)


def test_targets_are_held_against_the_bound_that_they_name() -> None:
    ratings = project(PEOPLE, groups=40, raters_per_group=(2,))
    rounds = {"production": of_round(ratings, LEVELS, seed=0)}
    found = rounds["production"]["visual_quality"]["alpha_ordinal"]
    between = (found["low"] + found["value"]) / 2

    def target(**changes: object) -> Target:
        return Target.model_validate({"round": "production", "dimension": "visual_quality", "at_least": between} | changes)

    entries = checked_targets(rounds, {}, [target(), target(bound="value"), target(round="pilot"), target(dimension="x")])
    assert {entry["estimate_of_all"] for entry in entries} == {None}
    assert [entry["met"] for entry in entries] == [False, True, None, None]
    assert not met(entries) and met(entries[1:]) and not met(entries[2:]), "with nothing to judge the targets are not met"
    assert checked_targets(rounds, {}, [target(statistic="icc_2_1", at_least=-1)])[0]["met"] is False, "undefined meets nothing"
    assert re.fullmatch(r"no two items were rated by all raters", rounds["production"]["visual_quality"]["icc_2_1"]["note"])


def test_a_level_of_a_fine_scale_is_a_quarter_of_its_range() -> None:
    assert level_width([1, 2, 3, 4]) == 1 and level_width([0, 0.5, 1]) == 0.5
    fine = [round(1 + i / 10, 1) for i in range(41)]
    assert level_width(fine) == 1
    rng = np.random.default_rng(0)
    truth = rng.uniform(1.5, 4.5, (20, 4))
    scores = {f"g{n}": {name: {"x": np.round(truth[n] + rng.normal(0, 0.25, 4), 1).tolist()} for name in ("a", "b")} for n in range(20)}
    found = screen(rows_of(scores), fine, QualityConfig(), seed=0)
    assert {entry.status for entry in found.statuses.values()} == {"good"}
    assert found.profiles["a"][0].within_one.value == 1.0, "half a point apart is less than a level"
