"""What to annotate next: the numbers behind the choice, the choice, and the list that export takes."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from rated_run import candidates as made_candidates
from rated_run import make_run, rating_task_of, ratings_of, source, write_csv

from pipeline.cli import main
from reward import RewardModel
from reward.config import PresentationConfig, RewardModelConfig
from stages.annotate import step as annotate
from stages.annotate.active import step as next_annotations
from stages.annotate.active.information import SHRINKAGE, ScoredGroup, choose, disagreement, information
from stages.annotate.config import QualityConfig
from stages.annotate.quality import step as annotation_qc
from stages.context import Context
from stages.engine import storage
from stages.engine.images import png

SCORES = st.lists(st.tuples(st.floats(-4, 4), st.floats(0, 3)), min_size=2, max_size=6)


def group(name: str, mean: list[float], sigma: list[float], task: str = "t", rated: list[float] | None = None) -> ScoredGroup:
    return ScoredGroup(name, task, np.array(mean), np.array(sigma), None if rated is None else np.array(rated))


@given(SCORES, st.randoms())
@settings(max_examples=100, deadline=None)
def test_information_is_between_nothing_and_one_bit_a_pair(scores: list[tuple[float, float]], random: Any) -> None:
    mean, sigma = (np.array(column) for column in zip(*scores, strict=True))
    value = information(mean, sigma)
    assert 0 <= value <= np.log(2) * len(scores) * (len(scores) - 1) / 2
    order = np.array(random.sample(range(len(scores)), len(scores)))
    assert information(mean[order], sigma[order]) == pytest.approx(value, abs=2e-6)
    assert information(mean, 0 * sigma) == pytest.approx(0, abs=1e-6), "a difference that is known teaches nothing"


def test_information_is_that_of_a_simulation() -> None:
    rng = np.random.default_rng(0)
    difference = 0.7 + np.hypot(0.8, 1.1) * rng.standard_normal(400_000)
    better = 1 / (1 + np.exp(-difference))

    def entropy(p: Any) -> Any:
        return -p * np.log(p) - (1 - p) * np.log(1 - p)

    expected = entropy(better.mean()) - entropy(better).mean()
    assert information(np.array([0.7, 0.0]), np.array([0.8, 1.1])) == pytest.approx(expected, abs=1e-3)
    unsure, sure = information(np.array([0.0, 0.0]), np.array([1.0, 1.0])), information(np.array([5.0, 0.0]), np.array([1.0, 1.0]))
    assert unsure > 5 * sure, "an undecided pair teaches more than a decided one"


def test_disagreement_by_hand() -> None:
    rated = [
        group("a", [2, 1, 0], [1, 1, 1], "add", [6, 4, 4]),  # two strict pairs, both as rated
        group("b", [0, 1], [1, 1], "move", [7, 3]),  # one strict pair, the other way round
    ]
    rate = 1 / 3
    assert disagreement(rated) == {
        "add": pytest.approx(SHRINKAGE * rate / (2 + SHRINKAGE) / rate, abs=1e-6),
        "move": pytest.approx((1 + SHRINKAGE * rate) / (1 + SHRINKAGE) / rate, abs=1e-6),
    }
    assert disagreement(rated[:1]) == {} and disagreement([]) == {}, "a model that never errs says nothing about kinds"


def test_the_choice_prefers_information_and_keeps_kinds_even() -> None:
    pool = [group(f"{task}{n}", [0, 0.1 * n], [1, 1], task) for task in ("add", "move") for n in range(30)]
    chosen = choose(pool, [], {}, 20)
    assert [choice.group_id for choice in chosen if choice.task == "add"] == [f"add{n}" for n in range(10)], "undecided pairs first"
    assert Counter(choice.task for choice in chosen) == {"add": 10, "move": 10}
    uneven = Counter(choice.task for choice in choose(pool, [], {"add": 20}, 10))
    assert uneven["move"] == 10, "what is rated too little comes first"
    erring = [group(f"r{n}", [0, 1], [1, 1], "move", [5, 3]) for n in range(80)] + [group("s", [0, 1], [1, 1], "add", [3, 5])] * 80
    assert Counter(choice.task for choice in choose(pool, erring, {}, 6))["move"] > 3, "and where the model errs"
    assert choose(pool[::-1], [], {}, 20) == chosen, "the order of the pool decides nothing"
    assert len(choose(pool, [], {}, 1000)) == len(pool)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images that decode, in the runs of this file."""

    def edits(number: int) -> list[dict[str, Any]]:
        pixels = [np.full((16, 16, 3), (12 * place + 5 * number) % 256, np.uint8) for place in range(6)]
        rows = zip(made_candidates(number), pixels, strict=True)
        return [row | {"image": {"bytes": png(image), "path": None}} for row, image in rows]

    monkeypatch.setattr("rated_run.candidates", edits)


def run_with_ratings(path: Path, rated: int, groups: int = 15) -> Context:
    image = {"bytes": png(np.full((16, 16, 3), 90, np.uint8)), "path": None}
    context = make_run(path, sources=[source(number, image=image) for number in range(groups)])
    names = list(rating_task_of(context).sampled)[:rated]
    if names:
        annotate.ingest(context, [write_csv(path / "a.csv", ratings_of(rating_task_of(context), groups=names))])
    return context


def listed(context: Context) -> list[dict[str, str]]:
    return list(csv.DictReader((context.run.path / "next-annotations" / "groups.csv").read_text().splitlines()))


def test_random_needs_no_model_and_leaves_held_out_groups_alone(tmp_path: Path, drawn: None) -> None:
    context = run_with_ratings(tmp_path / "run", rated=4)
    done = {row["source_id"] for row in context.run.step("annotate").read("ratings", ["source_id"]).to_pylist()}
    split = {row["source_id"]: row["split"] for row in context.run.step("generate").read("sources", ["source_id", "split"]).to_pylist()}
    next_annotations.run(context, count=100, strategy="random")
    names = [row["group_id"] for row in listed(context)]
    assert len(set(names)) == len(names) and set(names) == {name for name in split if split[name] == "train" and name not in done}
    next_annotations.run(context, count=3, strategy="random")
    assert [row["group_id"] for row in listed(context)] == names[:3]
    with pytest.raises(ValueError, match="no reward model at"):
        next_annotations.run(context, count=3, strategy="information")
    with pytest.raises(ValueError, match="--strategy random uses no model"):
        next_annotations.run(context, count=3, strategy="random", model="there")
    with pytest.raises(ValueError, match="--count 0"):
        next_annotations.run(context, count=0, strategy="random")
    with pytest.raises(ValueError, match="every group of the training split is rated"):
        next_annotations.run(run_with_ratings(tmp_path / "done", rated=15), count=1, strategy="random")


def test_rankings_and_what_quality_control_refused_rate_no_group(tmp_path: Path) -> None:
    context = make_run(tmp_path / "run", groups=5, simulate=None, quality=QualityConfig(exclude=("bob",)))
    work = rating_task_of(context)
    split = {row["source_id"]: row["split"] for row in context.run.step("generate").read("sources", ["source_id", "split"]).to_pylist()}
    ranked, refused, scored, never = (name for name in work.sampled if split[name] == "train")
    rows = [
        row | {"round": round}
        for name, who, round in ((ranked, "ann", "ranking"), (refused, "bob", "production"), (scored, "ann", "production"))
        for row in ratings_of(work, who, groups=[name])
    ]
    annotate.ingest(context, [write_csv(tmp_path / "r.csv", rows)])
    next_annotations.run(context, count=9, strategy="random")
    assert {row["group_id"] for row in listed(context)} == {ranked, never}, "ranks are no scores"
    annotation_qc.run(context)
    index = next_annotations.run(context, count=9, strategy="random")
    assert {row["group_id"] for row in listed(context)} == {ranked, refused, never}, "what is not accepted is not rated"
    assert index.inputs.keys() == {"generate", "annotate", "annotation-qc"}
    annotate.ingest(
        context, [write_csv(tmp_path / "more.csv", [row | {"round": "production"} for row in ratings_of(work, groups=[never])])]
    )
    with pytest.raises(ValueError, match="is older than the ratings"):
        next_annotations.run(context, count=9, strategy="random")


def test_a_model_chooses_the_same_list_everywhere(tmp_path: Path, drawn: None, cluster: object) -> None:
    config = RewardModelConfig(presentation=PresentationConfig(layout="clip", image_area=1024))
    RewardModel.from_config(config, ["make object größer"], seed=3).save(tmp_path / "model")
    for name in "ab":
        context = run_with_ratings(tmp_path / name, rated=6)
        index = next_annotations.run(context, count=5, strategy="information", model=tmp_path / "model")
    assert (
        storage.tree_hashes(tmp_path / "a" / "next-annotations").keys() == storage.tree_hashes(tmp_path / "b" / "next-annotations").keys()
    )
    assert (tmp_path / "a" / "next-annotations" / "groups.csv").read_bytes() == (
        tmp_path / "b" / "next-annotations" / "groups.csv"
    ).read_bytes()
    rows = listed(context)
    assert [row["rank"] for row in rows] == list("12345") and sum(index.results["by_task"].values()) == 5
    for row in rows:
        worth = float(row["information"]) * float(row["disagreement"]) * float(row["coverage"])
        assert float(row["worth"]) == pytest.approx(worth, abs=2e-3) and "nats over its pairs" in row["reason"]
    assert index.counts["in"] == index.counts["out"] > 0
    (tmp_path / "b" / "config.yaml").write_text("name: test\n")
    arguments = [
        "annotate",
        "next",
        "--run",
        str(tmp_path / "b"),
        "--count",
        "2",
        "--strategy",
        "information",
        "--model",
        str(tmp_path / "model"),
    ]
    result = CliRunner().invoke(main, arguments)
    assert (
        result.exit_code == 0
        and f"pipeline annotate export --run {tmp_path / 'b'} --groups" in result.output
        and rows[0]["group_id"] in result.output
    ), result.output
