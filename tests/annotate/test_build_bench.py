"""Consensus of experts, tuples, and a benchmark of the toy world from its raters to a scored reward model."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from benchmark_copies import scored
from command import pipeline, refusal
from hypothesis import given, settings
from hypothesis import strategies as st
from rated_run import make_run, rating_task_of, ratings_of, write_csv

from reward.benchmarks import tiger_editreward_bench as bench
from stages.annotate import step as annotate
from stages.annotate.bench import step as build_bench
from stages.annotate.bench.tuples import ExpertGroup, balanced, choose, hardest
from stages.annotate.config import BenchConfig, ReannotationRules
from stages.annotate.consensus import consensus
from stages.annotate.quality.queues import queues
from stages.annotate.ratings.groups import complete_groups
from stages.engine import storage


def group(name: str, overall: list[list[float]], task: str = "add") -> ExpertGroup:
    """Experts' scores of candidates in one dimension, [expert][candidate]; the consensus is the median."""
    experts = np.array(overall)[:, :, None]
    return ExpertGroup(name, task, tuple(f"{name}{i}" for i in range(experts.shape[1])), experts, np.median(experts, axis=0))


def test_relations_need_consensus_and_most_experts() -> None:
    three = group("g", [[4, 3, 2, 2], [4, 2, 3, 2], [3, 3, 1, 2]])
    assert three.consensus[:, 0].tolist() == [4, 3, 2, 2]
    assert three.relation(0, 1) == 1 and three.relation(1, 0) == -1
    assert three.relation(2, 3) == 0, "equal consensus is a tie, whatever each expert said"
    assert group("h", [[1, 2], [3, 3], [4, 4]]).relation(0, 1) == 0
    unclear = ExpertGroup("i", "add", ("a", "b"), np.array([[[2.0], [2]], [[2], [2]], [[3], [2]]]), np.array([[3.0], [2]]))
    assert unclear.relation(0, 1) is None, "one of three experts is no majority"


def test_the_hardest_strict_order_of_a_group() -> None:
    clear = group("g", [[1, 2, 3, 4, 4]] * 3)
    found = hardest(clear, 3, tie=False, seed=0)
    assert found is not None and found.hardness == pytest.approx(4 / 3) and found.agreement == 1.0
    assert sorted(clear.consensus[list(found.indices), 0].tolist()) in ([1, 2, 3], [2, 3, 4])
    assert hardest(clear, 4, tie=False, seed=0) is not None
    assert hardest(group("h", [[1, 1, 2, 2]] * 3), 3, tie=False, seed=0) is None, "ties are no strict order"
    tied = hardest(clear, 2, tie=True, seed=0)
    assert tied is not None and sorted(tied.indices) == [3, 4] and tied.tie and tied.hardness == 0


SCORES = st.lists(st.lists(st.integers(1, 4), min_size=5, max_size=5), min_size=3, max_size=3)


@given(st.lists(SCORES, min_size=1, max_size=8), st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_tuples_are_consistent_and_groups_are_used_once(tables: list[Any], seed: int) -> None:
    groups = [group(f"g{i}", table, task=("add", "remove")[i % 2]) for i, table in enumerate(tables)]
    found = choose(groups, {2: 2, 3: 2, 4: 2}, tie_share=0.5, seed=seed)
    assert max(Counter(t.group.source_id for t in found).values(), default=1) == 1
    assert max(Counter(t.size for t in found).values(), default=0) <= 2 and sum(t.tie for t in found) <= 1
    for t in found:
        relations = [t.group.relation(a, b) for i, a in enumerate(t.indices) for b in t.indices[i + 1 :]]
        assert all(relation == 0 for relation in relations) if t.tie else all(relations)
    assert found == choose(groups[::-1], {2: 2, 3: 2, 4: 2}, tie_share=0.5, seed=seed), "the order of the groups does not matter"


def test_tasks_take_turns_and_the_hardest_goes_first() -> None:
    easy = [group(f"a{i}", [[1, 4]] * 3) for i in range(3)]
    hard = [group("b", [[1, 2]] * 3), group("c", [[1, 3]] * 3, task="remove"), group("d", [[1, 2]] * 3, task="remove")]
    tuples = [hardest(entry, 2, tie=False, seed=0) for entry in [*easy, *hard]]
    taken = balanced([t for t in tuples if t], 4, Counter(), seed=0)
    assert [t.group.source_id for t in taken[:2]] == ["b", "d"] and taken[2].group.task == "add" and taken[3].group.source_id == "c"


def said(path: Path, scores: dict[str, int], *more: dict[str, Any]) -> tuple[Any, Any]:
    """A run with one group of which each named expert gave all cells the same score, and further rows; its ratings and manifest."""
    context = make_run(path, groups=1, simulate=None)
    work = rating_task_of(context)
    rows = [row | {"round": "benchmark"} for name, score in scores.items() for row in ratings_of(work, name, score=score)]
    cell = rows[0]
    annotate.ingest(context, [write_csv(path / "r.csv", rows + [cell | extra for extra in more])])
    return context.run.step("annotate").read("ratings"), work


def test_majority_or_the_adjudicator(tmp_path: Path) -> None:
    agreed = consensus.majority(*said(tmp_path / "a", {"ann": 3, "bob": 3, "cat": 1}))
    assert {(label.score, label.label_source) for label in agreed.labels} == {(3.0, "majority")} and not agreed.disputed
    unanimous = consensus.majority(*said(tmp_path / "b", {"ann": 2, "bob": 2, "cat": 2}))
    assert {label.label_source for label in unanimous.labels} == {"unanimous"}
    half = consensus.majority(*said(tmp_path / "half", {"ann": 3, "bob": 3, "cat": 1, "dan": 1}))
    assert not half.labels and len(half.disputed) == 8, "half of the raters are no majority"
    ratings, work = said(
        tmp_path / "c",
        {"ann": 1, "bob": 2, "cat": 4},
        {"annotator_id": "eve", "round": "adjudication", "score": 2},
    )
    settled = consensus.majority(ratings, work)
    assert [(label.score, label.label_source, label.raters) for label in settled.labels] == [(2.0, "adjudicated", 3)]
    assert len(settled.disputed) == 7 and settled.disputed[0].scores == (1.0, 2.0, 4.0)
    own_ratings, _ = said(tmp_path / "d", {"ann": 1, "bob": 2, "cat": 4}, {"round": "adjudication", "score": 2})
    assert not consensus.majority(own_ratings, work).labels, "who rated the group cannot adjudicate it"
    raters = {name: {"ann", "bob", "cat"} for name in work.sampled}
    asked = [len(queues(table, raters, work, ReannotationRules())[1]) for table in (ratings, own_ratings)]
    assert asked == [7, 8], "nor takes it from the queue of quality control"
    two = consensus.majority(*said(tmp_path / "e", {"ann": 1, "bob": 1}))
    assert [row.reason for row in two.left_out] == ["too-few-raters"]
    average = consensus.mean(*said(tmp_path / "f", {"ann": 1, "bob": 2}))
    assert {(label.score, label.raters, label.label_source) for label in average.labels} == {(1.5, 2, "mean")}


def test_pairs_and_consensus_have_one_mean(tmp_path: Path) -> None:
    """Who rated a group in two rounds has one opinion, and an adjudicator, even of a whole group, has none."""
    context = make_run(tmp_path, groups=1, simulate=None)
    work = rating_task_of(context)
    given = (("ann", "production", 1), ("ann", "reannotation", 2), ("bob", "production", 3), ("eve", "adjudication", 4))
    rows = [row | {"round": round} for name, round, score in given for row in ratings_of(work, name, score=score)]
    annotate.ingest(context, [write_csv(tmp_path / "r.csv", rows)])
    ratings = context.run.step("annotate").read("ratings")
    (group,), _ = complete_groups(ratings, work)
    assert (group.scores == 2.25).all() and group.raters == 2
    assert {(label.score, label.raters) for label in consensus.mean(ratings, work).labels} == {(2.25, 2)}
    only, left_out = complete_groups(ratings.filter(pc.equal(ratings["round"], "adjudication")), work)
    assert not only and [row.reason for row in left_out] == ["unrated-group"]
    found, _ = queues(ratings, {group.source_id: {"ann", "bob"}}, work, ReannotationRules())
    assert found[0].message.startswith("2 raters differ by 1.50 levels"), "in quality control as well"


def test_groups_without_a_settled_candidate_are_counted(tmp_path: Path) -> None:
    context = make_run(tmp_path / "run", groups=3, simulate=None, benchmark=BenchConfig(split="all", pairs=2, triples=0, quadruples=0))
    work = rating_task_of(context)
    agreed, half, apart = sorted(work.sampled)
    place = {candidate: i for of in work.sampled.values() for i, candidate in enumerate(sorted(of), start=1)}

    def score(row: dict[str, Any], expert: int) -> int:
        """The same of all experts in the first group, in one dimension of the second; else each expert another one."""
        alike = row["group_id"] == agreed or (row["group_id"] == half and row["dimension"] == work.dimensions[0])
        return place[row["candidate_id"]] if alike else expert

    rows = [
        row | {"round": "benchmark", "score": score(row, expert)}
        for expert, name in enumerate(("ann", "bob", "cat"), start=1)
        for row in ratings_of(work, name)
    ]
    annotate.ingest(context, [write_csv(tmp_path / "r.csv", [row for row in rows if row["group_id"] != agreed])])
    none = make_run(tmp_path / "run", groups=3, simulate=None, benchmark=BenchConfig(pairs=0, triples=0, quadruples=0))
    with pytest.raises(ValueError, match="asks for no tuples"):
        build_bench.run(none)
    with pytest.raises(ValueError, match="order no two edits of a group clearly, and 12 cells have no majority"):
        build_bench.run(context)
    annotate.ingest(context, [write_csv(tmp_path / "r.csv", rows)])
    build_bench.run(context)
    summary = json.loads((tmp_path / "run/build-bench/summary.json").read_text())
    assert summary["groups_left_out"] == {"no-settled-candidate": 2} and summary["groups_of_experts"] == 1
    assert summary["tuples"]["2"] == 1 and summary["cells_to_adjudicate"] == 12
    assert {row["source_id"] for row in csv.DictReader((tmp_path / "run/build-bench/tuples.csv").open())} == {agreed}
    assert apart in {row["group_id"] for row in csv.DictReader((tmp_path / "run/build-bench/adjudicate.csv").open())}


WORLD = """\
name: bench
world: {size: 16, kinds: [recolour, remove, add]}
generate:
  sources: {dataset: world, train: 2, validation: 24}
  editors:
    - {name: world/quill}
    - {name: world/bobbin}
    - {name: world/thimble}
    - {name: world/trowel}
  annotate: 7
  workers: 1
annotate:
  simulate: {overlap: 1.0, raters: 3}
  benchmark: {round: production, pairs: 6, triples: 5, quadruples: 4, tie_share: 0.34}
"""


def test_from_raters_of_the_world_to_a_scored_model(cluster: object, tmp_path: Path) -> None:
    (tmp_path / "bench.yaml").write_text(WORLD)
    run = tmp_path / "run"
    common = ["--config", tmp_path / "bench.yaml", "--run", run]
    pipeline("run", "generate", *common)
    delivered = [argument for file in pipeline("annotate", "simulate", *common).output.split() for argument in ("--file", file)]
    pipeline("annotate", "ingest", *common, *delivered)
    assert "no validation group was rated whole by 3 experts in round benchmark" in refusal(
        "annotate", "build-bench", *common, "annotate.benchmark.round=benchmark"
    )
    printed = pipeline("annotate", "build-bench", *common).output
    folder = run / "build-bench"
    made = storage.tree_hashes(folder)
    pipeline("annotate", "build-bench", *common, "--force")
    assert storage.tree_hashes(folder) == made, "the same bytes again"
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["tuples"] == {"2": 6, "3": 5, "4": 4} and summary["missing"] == {} and summary["ties"] == 2
    assert all(max(tasks.values()) - min(tasks.values()) <= 2 and len(tasks) == 3 for tasks in summary["by_task"].values())
    assert summary["expert_agreement"] > 0.7 and "comparisons" in printed

    items = bench.load(folder / "EditReward-Bench")
    assert len(items) == 6 + 5 * 3 + 4 * 6 == summary["comparisons"]
    repeated = bench.contradicted(items)
    assert repeated == (set(), dict.fromkeys(repeated[1], 0)), "no comparison is there twice"
    assert summary["candidates_that_are_copies"] > 0, "the world's editors make some edits alike"
    assert Counter(item.label == 0 for item in items if item.kind == "2pair") == {True: 2, False: 4}
    assert all(item.label for item in items if item.kind != "2pair")
    first = pq.read_table(next((folder / "EditReward-Bench/4pair").glob("*.parquet"))).to_pylist()[0]
    assert (first["score_1"] > first["score_2"]) == first["ranking"].startswith(first["comparison_type"][0])
    assert first["score_1"] == first["instruction_following_1"] + first["visual_quality_1"] and first["model_1"].startswith("world/")

    import torch

    from reward import RewardModel, RewardModelConfig
    from reward.evaluation.bootstrap import Bootstrap

    torch.set_num_threads(1)
    model = RewardModel.from_config(RewardModelConfig(), ["make the circle red"], seed=0)
    scores, failed = scored(model, items)
    assert not failed
    result = bench.evaluate(items, scores, bootstrap=Bootstrap(100))
    assert result.counts["groups"] == 15 and result.counts["groups without all their comparisons"] == 0
    assert result.counts["groups left out of the sound figures"] == 0 and result.counts["ties in groups of 3 or 4"] == 0

    queue = folder / "adjudicate.csv"
    with queue.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == summary["cells_to_adjudicate"] > 0
    filled = [row | {"annotator_id": "expert", "score": row["scores_given"].split()[1]} for row in rows]
    settled = write_csv(tmp_path / "settled.csv", filled)
    said = pipeline("annotate", "ingest", *common, "--file", settled).output
    assert f"{len(rows):,}" in said and "incompletely" not in said and "is not read" not in said
    pipeline("annotate", "build-bench", *common, "--force")
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["cells_to_adjudicate"] == 0 and summary["labels"]["adjudicated"] == len(rows)
