"""Rankings, mean opinion scores and the consensus command; rankings and scores in one ledger, and a scale of tenths."""

from __future__ import annotations

import csv
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from command import pipeline, refusal
from hypothesis import given, settings
from hypothesis import strategies as st
from panels import rows_of
from rated_run import make_run, rating_task_of, ratings_of, write_csv
from scipy.stats import friedmanchisquare, rankdata

from pipeline import config
from pipeline.report import page
from stages.annotate import step as annotate
from stages.annotate.consensus import step as annotation_consensus
from stages.annotate.consensus.consensus import majority
from stages.annotate.consensus.mean_opinion import mean_opinion
from stages.annotate.consensus.rankings import GroupRanking, RankPair, kendalls_w, pairs, without_contradictions
from stages.annotate.quality import step as annotation_qc
from stages.annotate.ratings.groups import complete_scores
from stages.annotate.ratings.validate import score_problem
from stages.context import Context
from stages.preferences import step as preferences


def test_concordance_of_rankings() -> None:
    same, opposite = np.array([[1, 2, 3, 4]] * 3), np.array([[1, 2, 3, 4], [4, 3, 2, 1]])
    assert kendalls_w(same) == pytest.approx(1) and kendalls_w(opposite) == pytest.approx(0)
    assert kendalls_w(same[:1]) is None and kendalls_w(np.ones((3, 4))) is None
    # three rankings of six items, sums 4 14 12 8 15 10: S = 79.5 about the mean 10.5, W = 12 S / (9 * 210)
    ranks = np.array([[1, 6, 3, 2, 5, 4], [1, 5, 6, 4, 2, 3], [2, 3, 5, 4, 6, 1]])
    sums = ranks.sum(axis=0)
    assert kendalls_w(ranks) == pytest.approx(12 * ((sums - 10.5) ** 2).sum() / (9 * 210))


@given(st.lists(st.lists(st.integers(1, 5), min_size=4, max_size=4), min_size=3, max_size=6))
@settings(max_examples=60, deadline=None)
def test_concordance_with_ties_is_friedmans_statistic(rows: list[list[int]]) -> None:
    ranks = np.array(rows, dtype=float)
    found = kendalls_w(ranks)
    if found is None:
        assert all(len(set(row)) == 1 for row in rows)
    else:
        assert found == pytest.approx(friedmanchisquare(*ranks.T).statistic / (len(rows) * 3), abs=1e-9)
        assert -1e-9 <= found <= 1 + 1e-9


def test_pairs_follow_the_mean_ranks_and_lose_contradictions() -> None:
    ranking = GroupRanking("g", "x", ("a", "b", "c"), np.array([1.5, 1.5, 3.0]), 0.8, ("ann", "bob"))
    found, equal = pairs([ranking])
    assert found == [RankPair("g", "x", "a", "c", 1.5), RankPair("g", "x", "b", "c", 1.5)] and equal == 1
    scores = {("a", "x"): 40.0, ("c", "x"): 60.0, ("b", "x"): 60.0}
    assert without_contradictions(found, scores) == ([found[1]], 1), "equal scores contradict nothing"
    assert without_contradictions(found, {}) == (found, 0)


def test_mean_opinion_scores_by_hand() -> None:
    """z of (1, 2, 3) is (-1, 0, 1) for whatever origin and unit a rater has; 100 (z + 3) / 6."""
    table = rows_of({"g": {"ann": {"x": [1, 2, 3]}, "bob": {"x": [2, 3, 4]}, "cat": {"x": [3, 3, 3]}}})
    found, warnings = mean_opinion(table)
    assert [label.score for label in found.labels] == pytest.approx([100 / 3, 50, 200 / 3], abs=1e-6)
    assert {(label.raters, label.label_source) for label in found.labels} == {(2, "mean-opinion")}
    assert [(row.reason, row.row_id) for row in found.left_out] == [("no-variation", "cat")]
    assert "3 raters gave fewer than 100 scores" in warnings[0]


def test_half_of_four_raters_is_no_majority() -> None:
    table = rows_of({"g": {name: {"x": [2, score]} for name, score in (("ann", 1), ("bob", 1), ("cat", 4), ("dan", 4))}})
    task: Any = SimpleNamespace(sampled={"g": ("g0", "g1")}, dimensions=("x",), group_of={"g0": "g", "g1": "g"})
    found = majority(table, task)
    assert [(label.candidate_id, label.score, label.label_source) for label in found.labels] == [("g0", 2, "unanimous")]
    assert [(cell.candidate_id, cell.scores) for cell in found.disputed] == [("g1", (1, 1, 4, 4))]
    asked = rows_of({"g": {"eve": {"x": [2, 4]}}})
    decided = asked.set_column(asked.schema.get_field_index("round"), "round", pa.array(["adjudication"] * 2))
    assert complete_scores(pa.concat_tables([table, decided]), task)["g"].keys() == {"ann", "bob", "cat", "dan"}, "who decides saw theirs"


SCALE = {"scale_min": 1, "scale_max": 5, "scale_step": 0.1}


def edithf(path: Path, *, groups: int = 6) -> tuple[Context, list[dict[str, Any]]]:
    """Groups scored in tenths by six people and ranked by three, after one quality; in the first group the rankings are at odds."""
    context = make_run(path, groups=groups, simulate=None, **SCALE)
    work = rating_task_of(context)
    rng = np.random.default_rng(0)
    rows = []
    for place, (group, candidates) in enumerate(sorted(work.sampled.items())):
        truth = dict(zip(candidates, 1.5 + rng.permutation(len(candidates)), strict=True))
        for name in ("s1", "s2", "s3", "s4", "s5", "s6"):
            offset = int(name[1]) / 10 - 0.3
            rows += [
                row | {"score": f"{np.clip(truth[row['candidate_id']] + offset + rng.normal(0, 0.2), 1, 5):.1f}", "round": "production"}
                for row in ratings_of(work, name, [group], score=1)
            ]
        for number, name in enumerate(("r1", "r2", "r3")):
            order = rankdata([-truth[candidate] for candidate in candidates])
            ranks = dict(zip(candidates, np.roll(order, number) if place == 0 else order, strict=True))
            rows += [
                row | {"score": int(ranks[row["candidate_id"]]), "round": "ranking"} for row in ratings_of(work, name, [group], score=1)
            ]
    annotate.ingest(context, [write_csv(path / "both.csv", rows)])
    (path / "config.yaml").write_text(config.dump(context.flow))
    return context, rows


def test_rankings_and_scores_share_a_ledger(tmp_path: Path) -> None:
    context, rows = edithf(tmp_path / "run")
    ledger = context.run.step("annotate").require()
    assert ledger.counts["out"] == len(rows) and ledger.counts["quarantined"] == 0
    table = context.run.step("annotate").read("ratings").to_pylist()
    assert {(row["scale_min"], row["scale_max"]) for row in table if row["round"] == "ranking"} == {(1.0, 4.0)}
    assert ledger.results["agreement"]["visual_quality"]["raters"] == 6, "ranks are no scores"

    said = pipeline("annotate", "consensus", "--run", tmp_path / "run", "--method", "ranking").output
    folder = tmp_path / "run/consensus-ranking"
    index = context.run.step("consensus-ranking").require()
    again = list(csv.DictReader((folder / "reannotate.csv").open()))
    assert len(again) == index.results["groups_again"] == 1 and again[0]["reason"] == "rankings-differ"
    assert "groups again: 1" in said and index.results["labels"] == {"mean-rank": 5 * 4 * 2}
    kept = list(csv.DictReader((folder / "pairs.csv").open()))
    assert len(kept) == index.results["pairs"] == 5 * 6 * 2 - index.results["pairs_contradicted_by_scores"]
    assert index.results["pairs_contradicted_by_scores"] == 0

    pipeline("annotate", "consensus", "--run", tmp_path / "run", "--method", "mos")
    labels = context.run.step("consensus-mos").read("consensus")
    scores = labels["score"].to_numpy()
    assert labels.num_rows == 6 * 4 * 2 and 0 < scores.min() < 45 < 55 < scores.max() < 100
    assert scores.mean() == pytest.approx(50, abs=1e-6), "z-scores of everybody have mean 0"

    preferences.run(context)
    assert set(context.run.step("preferences").read("pairs")["raters"].to_pylist()) == {6}
    annotation_qc.run(context)
    assert context.run.step("annotation-qc").require().counts["excluded"] == 0
    assert "Scores given" in page.build(context.run).read_text()


def test_a_contradicted_pair_is_dropped(tmp_path: Path) -> None:
    context = make_run(tmp_path / "run", groups=1, simulate=None)
    work = rating_task_of(context)
    order = {candidate: place for place, candidate in enumerate(sorted(next(iter(work.sampled.values()))), start=1)}
    rows = [row | {"score": order[row["candidate_id"]], "round": "production"} for row in ratings_of(work, "s1", score=1)]
    rows += [
        row | {"score": order[row["candidate_id"]], "round": "ranking"}
        for name in ("r1", "r2", "r3")
        for row in ratings_of(work, name, score=1)
    ]
    annotate.ingest(context, [write_csv(tmp_path / "r.csv", rows)])
    index = annotation_consensus.run(context, "ranking")
    assert (index.results["pairs"], index.results["pairs_contradicted_by_scores"]) == (0, 12), "rank 1 is best, score 1 is worst"


def test_a_scale_of_tenths_and_ranks_are_checked(tmp_path: Path) -> None:
    context = make_run(tmp_path / "run", groups=1, simulate=None, **SCALE)
    work = rating_task_of(context)
    assert len(work.scale.levels) == 41 and work.scale.levels[13] == 2.3
    assert [score_problem(text, work.scale) for text in ("1", "2.3", "4.9", "5,0")] == [None] * 4
    assert [problem[0] for text in ("2.35", "5.1") if (problem := score_problem(text, work.scale))] == [
        "score-not-whole",
        "score-out-of-scale",
    ]
    cell = ratings_of(work, "ann", score=1)[0]
    wrong = [
        cell | {"annotator_id": name, "round": "ranking", "score": score} for name, score in (("a", 0), ("b", 2.5), ("c", 5), ("d", 4))
    ]
    found = annotate.ingest(context, [write_csv(tmp_path / "w.csv", wrong)]).index
    assert found.quarantined == {"score-not-whole": 1, "score-out-of-scale": 2} and found.counts["out"] == 1


def test_consensus_by_command(tmp_path: Path) -> None:
    context = make_run(tmp_path / "run", groups=3, simulate=None)
    (tmp_path / "run/config.yaml").write_text(config.dump(context.flow))
    work = rating_task_of(context)
    first, second, _ = sorted(work.sampled)
    rows = [row | {"round": "benchmark"} for name in ("a", "b", "c") for row in ratings_of(work, name, [first], score=2)]
    rows += [row | {"round": "production"} for row in ratings_of(work, "a", [second], score=3)]
    annotate.ingest(context, [write_csv(tmp_path / "r.csv", rows)])
    assert "left out: unrated-group 1" in pipeline("annotate", "consensus", "--run", tmp_path / "run", "--method", "mean").output
    said = pipeline("annotate", "consensus", "--run", tmp_path / "run", "--method", "majority").output
    assert "labels: unanimous 8" in said and "left out: too-few-raters 2" in said
    table = list(csv.DictReader((tmp_path / "run/consensus-majority/consensus.csv").open()))
    assert {(row["source_id"], row["score"], row["raters"]) for row in table} == {(first, "2.0", "3")}
    found = refusal("annotate", "consensus", "--run", tmp_path / "run", "--method", "ranking")
    assert "has no ratings that the method ranking needs: ranks of a whole group by somebody, in round ranking" in found
    found = refusal("annotate", "consensus", "--run", tmp_path / "run", "--method", "majority", "annotate.benchmark.round=pilot")
    assert "three people in round pilot (annotate.benchmark.round), e.g. group" in found and "a majority needs 3" in found
