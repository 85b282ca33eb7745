"""Benchmarks as a part of the step evaluate-reward, on Ray with a model of random weights: what is published, resumed, refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import rated_run
from benchmark_copies import cell, genai_row, png, tiger_row, write

from pipeline.report.page import build
from pipeline.status import headline
from stages.annotate import step as annotate
from stages.config import FlowConfig
from stages.context import Context
from stages.engine import contracts, storage
from stages.engine.cluster import Cluster
from stages.engine.rundir import Index, RunDir
from stages.engine.units import publish_unit
from stages.evaluate_reward import benchmarks
from stages.evaluate_reward import step as evaluate_reward
from stages.evaluate_reward.config import BenchmarkConfig, EvaluateRewardConfig
from stages.preferences import step as preferences
from stages.scoring.rows import scorer_revision


def save_model(path: Path, seed: int) -> Path:
    import torch

    from reward import RewardModel, RewardModelConfig

    torch.set_num_threads(1)
    RewardModel.from_config(RewardModelConfig(), ["edit 1 make object"], seed=seed).save(path)
    return path


def trained(path: Path) -> Context:
    """A run that is done up to train-reward: synthetic images, simulated ratings, random weights."""
    context = rated_run.make_run(path, groups=10, seed=1)
    folder = context.run.step("generate")
    sources = [rated_run.source(number, image=cell(number)) for number in range(10)]
    candidates = [
        row | {"image": cell(100 * number + place)} for number in range(10) for place, row in enumerate(rated_run.candidates(number))
    ]
    drawn = [row for number in range(10) for row in rated_run.drawn(number)]
    rows_of = {"sources": sources, "candidates": candidates, "drawn": drawn}
    tables = {name: contracts.table(name, rows) for name, rows in rows_of.items()}
    parts = {name: [part] for name, part in publish_unit(folder.path, "drawn", tables).items()}
    folder.publish(Index("generate", "key", {}, {}, artifacts=parts))
    annotate.export(context)
    annotate.ingest(context, annotate.simulate(context))
    preferences.run(context)
    step = context.run.step("train-reward")
    model = save_model(step.path / "model", seed=0)
    files = {f"model/{name}": sha256 for name, sha256 in storage.tree_hashes(model).items()}
    step.publish(Index("train-reward", "key", {}, {}, files=files))
    return context


def with_benchmarks(context: Context, cluster: Cluster, copies: Path, names: Sequence[str], **settings: Any) -> Context:
    entries = tuple(BenchmarkConfig(name=name, path=str(copies / name), revision="r1") for name in names)  # ty: ignore[invalid-argument-type]
    config = EvaluateRewardConfig(bootstrap=100, benchmarks=entries, unit_sources=2, **settings)
    return replace(context, flow=context.flow.model_copy(update={"evaluate_reward": config}), cluster=cluster)


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """GenAI-Bench and the groups of TIGER's bench, with two edits in common, one that does not decode, and one source of the run."""
    folder = tmp_path_factory.mktemp("copies")
    broken = {"bytes": png(913)[:60], "path": ""}
    votes = [
        genai_row(201, 901, 902, "leftvote"),
        genai_row(202, 903, 904, "bothbad_vote"),
        genai_row(3, 905, 906, "rightvote"),  # source 3 is one of the run's
        genai_row(204, 907, 908, "leftvote") | {"right_output_image": broken},
        genai_row(205, 909, 910, "tievote"),
    ]
    write(folder / "genai-bench" / "image_edition" / "test_v1-00000-of-00001.parquet", votes)
    groups = [
        tiger_row("2pair", "p1_AvsB", 201, 901, 902, "AvsB", "A>B"),
        tiger_row("2pair", "p2_AvsB", 207, 911, 912, "AvsB", "A=B"),
        tiger_row("2pair", "p3_AvsB", 208, 914, 915, "AvsB", "B>A"),
    ]
    write(folder / "tiger-editreward-bench" / "2pair" / "train-00000-of-00001.parquet", groups)
    return folder


BOTH = ("genai-bench", "tiger-editreward-bench")


@pytest.fixture(scope="module")
def finished(cluster: Cluster, copies: Path, tmp_path_factory: pytest.TempPathFactory) -> Context:
    """Both benchmarks, compared with another model."""
    base = tmp_path_factory.mktemp("finished")
    other = save_model(base / "other", seed=1)
    context = with_benchmarks(trained(base / "run"), cluster, copies, BOTH, workers=2, compare_with=str(other))
    evaluate_reward.run(context)
    return context


def test_what_is_published(finished: Context) -> None:
    step = finished.run.step("evaluate-reward")
    index = step.require()
    assert step.damage(index) is None
    for name in ("evaluation.json", "benchmarks.json", "benchmarks/index.json", "benchmarks/genai-bench.jsonl"):
        assert name in index.files
    assert any(name.startswith("benchmarks/units/") and name.endswith("/scores.parquet") for name in index.files)
    content = storage.read_json(step.path / "benchmarks.json")
    assert content["quarantined"] == {"unscorable": 2}, "one edit, by each of two models"
    genai = content["benchmarks"]["genai-bench"]
    assert genai["revision"] == "r1"
    assert (
        genai["result"]["counts"] | {"items": 5, "edits": 10, "edits without score": 1, "items without score": 1}
        == genai["result"]["counts"]
    )
    row = next(row for row in genai["result"]["rows"] if row["figure"] == "with ties, oracle threshold")
    assert (
        row.keys() == {"convention", "figure", "model", "random", "constant", "closest to the source"} and row["constant"]["value"] == 0.4
    )
    assert index.results["benchmarks"]["genai-bench"]["published"] == {"figure": row["figure"], "value": row["model"]["value"]}
    inner = json.loads((step.path / "benchmarks" / "index.json").read_text())
    distinct = 10 + 6 - 2
    assert inner["counts"] == {"in": 2 * distinct, "out": 2 * (distinct - 1), "quarantined": 2}, "shared edits are scored once"


def test_the_report_shows_both_conventions_and_what_the_training_data_share(finished: Context) -> None:
    page = build(finished.run).read_text()
    assert "Benchmark genai-bench, revision r1" in page and "with ties, oracle threshold" in page and "as published" in page
    assert "Among the run" in page and "McNemar" in page and "Constant" in page


def test_items_and_their_scores(finished: Context) -> None:
    folder = finished.run.step("evaluate-reward").path / "benchmarks"
    lines = [json.loads(line) for line in (folder / "genai-bench.jsonl").read_text().splitlines()]
    assert [line["label"] for line in lines] == [1, 0, -1, 1, 0] and lines[3]["scores"][1] is None and lines[3]["right"] is False
    assert set(lines[0]["scores"][0]) == {"overall", *contracts.DIMENSIONS}
    groups = [json.loads(line) for line in (folder / "tiger-editreward-bench.jsonl").read_text().splitlines()]
    assert groups[0]["edits"] == lines[0]["edits"] and groups[0]["scores"] == lines[0]["scores"]
    assert groups[0]["right"] is None and groups[0]["group_right"] in (True, False)


def test_contamination_and_comparison(finished: Context) -> None:
    figures = storage.read_json(finished.run.step("evaluate-reward").path / "benchmarks.json")["benchmarks"]["genai-bench"]
    found = figures["contamination"]
    exact = [match for match in found["matches"] if match["kind"] == "exact image"]
    assert [(match["items"], match["split"]) for match in exact] == [(1, "train")] and found["training_sources"] == 10
    effect = found["effect"]["image"]
    assert effect["items"] >= 1 and effect["rows"][0]["all"]["n"] == 5 and effect["rows"][0]["without"]["n"] == 5 - effect["items"]
    other = figures["compare"]
    assert other["both"] + other["only_first"] + other["only_second"] + other["neither"] == 5 and 0 < other["p_value"] <= 1
    assert other["other"]["rows"][0]["constant"] == figures["result"]["rows"][0]["constant"]


def test_a_repeated_command_does_nothing_and_a_lost_result_is_made_again_from_the_scores(
    finished: Context, capsys: pytest.CaptureFixture
) -> None:
    step = finished.run.step("evaluate-reward")
    before, log = finished.run.artifact_hashes(), (step.path / "benchmarks" / "units.jsonl").read_bytes()
    evaluate_reward.run(finished)
    assert "McNemar" not in capsys.readouterr().out
    (step.path / "benchmarks.json").unlink()
    evaluate_reward.run(finished)
    text = capsys.readouterr().out
    assert "revision r1 of genai-bench: items 5, edits 10" in text and "McNemar's exact p = " in text
    assert "items that match the run's 10 sources: " in text
    assert finished.run.artifact_hashes() == before and (step.path / "benchmarks" / "units.jsonl").read_bytes() == log


def test_bytes_do_not_depend_on_workers(finished: Context, cluster: Cluster, copies: Path, tmp_path: Path) -> None:
    alone = with_benchmarks(trained(tmp_path / "run"), cluster, copies, BOTH, workers=1)
    evaluate_reward.run(alone)
    for name in ("genai-bench.jsonl", "tiger-editreward-bench.jsonl"):
        one, two = (context.run.step("evaluate-reward").path / "benchmarks" / name for context in (alone, finished))
        assert one.read_bytes() == two.read_bytes()


def test_refusals(finished: Context, cluster: Cluster, copies: Path, tmp_path: Path) -> None:
    missing = with_benchmarks(finished, cluster, tmp_path, ["genai-bench"])
    with pytest.raises(ValueError, match=r"evaluate_reward\.benchmarks, genai-bench: there is no folder .*genai-bench; download"):
        evaluate_reward.run(missing)
    changed = tmp_path / "genai-bench"
    write(changed / "image_edition" / "test_v1-00000-of-00001.parquet", [genai_row(1, 11, 12, "leftvote")])
    with pytest.raises(ValueError, match="repeat with --force"):
        evaluate_reward.run(with_benchmarks(finished, cluster, tmp_path, ["genai-bench"]))
    write(changed / "image_edition" / "test_v1-00000-of-00001.parquet", [genai_row(1, 11, 12, "best vote")])
    with pytest.raises(ValueError, match=r"evaluate_reward\.benchmarks, genai-bench: .*, row 0, column vote_type: 'best vote' is none of"):
        evaluate_reward.run(with_benchmarks(trained(tmp_path / "one"), cluster, tmp_path, ["genai-bench"]))
    itself = finished.run.step("train-reward").path / "model"
    with pytest.raises(ValueError, match="is the model that is evaluated; name another one"):
        evaluate_reward.run(replace(with_benchmarks(finished, cluster, copies, BOTH, compare_with=str(itself)), force=True))
    with pytest.raises(ValueError, match="a benchmark is there twice: genai-bench, genai-bench"):
        with_benchmarks(finished, cluster, copies, ["genai-bench", "genai-bench"])
    with pytest.raises(ValueError, match="compare_with compares two models on benchmarks"):
        with_benchmarks(finished, cluster, copies, [], compare_with="x")


def test_without_benchmarks_nothing_is_added(cluster: Cluster, tmp_path: Path) -> None:
    context = with_benchmarks(rated_run.make_run(tmp_path / "run"), cluster, tmp_path, [])
    assert benchmarks.inputs(context.flow.evaluate_reward) == {}
    assert benchmarks.run(context, context.run.step("evaluate-reward"), tmp_path) == ({}, {})


def test_an_imported_model(cluster: Cluster, copies: Path, tmp_path: Path) -> None:
    """An imported checkpoint needs no run of its own: benchmarks alone, or the held-out groups of a run that trained another."""
    model = save_model(tmp_path / "model", seed=3)
    empty = Context(RunDir(tmp_path / "empty"), FlowConfig(name="elsewhere"), cluster)
    context = with_benchmarks(empty, cluster, copies, ["genai-bench"], model=str(model))
    index = evaluate_reward.run(context)
    assert "evaluation.json" not in index.files and index.results["benchmarks"].keys() == {"genai-bench"}
    assert headline(index) == "benchmarks: genai-bench"
    with pytest.raises(ValueError, match="has no held-out groups, and no benchmarks are listed"):
        evaluate_reward.run(with_benchmarks(replace(empty, run=RunDir(tmp_path / "other")), cluster, copies, [], model=str(model)))
    both = trained(tmp_path / "trained")
    own = evaluate_reward.run(with_benchmarks(trained(tmp_path / "own"), cluster, copies, []))
    other = evaluate_reward.run(with_benchmarks(both, cluster, copies, [], model=str(model)))
    assert "pair_accuracy" in other.results and other.inputs.keys() == {"model", "preferences"}
    revision = both.run.step("evaluate-reward").read("scores").column("scorer_revision")[0].as_py()
    assert revision == scorer_revision(model) and own.files["evaluation.json"] != other.files["evaluation.json"]
