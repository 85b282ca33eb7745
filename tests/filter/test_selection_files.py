"""Selections as files, through the command line: replay, damage, controls, and the comparison of two."""

from __future__ import annotations

import json
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from command import pipeline, refusal
from pydantic import ValidationError
from scipy import stats
from scored_run import TASKS, scored_run

from pipeline.config import load
from pipeline.planning import selection_sizes
from pipeline.planning.plan import plan
from stages.engine import storage
from stages.engine.rundir import RunDir
from stages.engine.units import publish_unit
from stages.filter.schemas import SCORED
from stages.filter.selection import difference
from stages.filter.selection.config import SelectionConfig


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with the selections ``selected`` and, in the configuration too, a control with its strata."""
    control = {"name": "control", "rule": "random", "like": "selected", "quotas": {"by": "task", "shares": "like"}}
    folder = tmp_path_factory.mktemp("scored")
    scored_run(folder, selections=(control,))
    return folder


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made / "run", tmp_path / "run")
    return tmp_path / "run"


def files(run: Path, name: str) -> list[bytes]:
    return [(run / "filter" / "selections" / f"{name}.{kind}").read_bytes() for kind in ("parquet", "json")]


def strata(run: Path, name: str) -> dict[str, int]:
    ids = pq.read_table(run / "filter" / "selections" / f"{name}.parquet")["sample_id"].to_pylist()
    index = json.loads((run / "filter" / "index.json").read_text())
    scores = pq.read_table(run / "filter" / index["artifacts"]["scores"]["parts"][0]["path"]).to_pylist()
    return {task: sum(row["task"] == task and row["sample_id"] in ids for row in scores) for task in TASKS}


def test_the_same_command_again_gives_the_same_bytes(run: Path) -> None:
    command = ["select", "--run", run, "--name", "even", "--rule", "top", "--value", "lower-bound", "--sigmas", 0.5, "--count", 9]
    command += ["--quota-by", "task", "--quota", "equal", "--at-most", 2, "--per", "source"]
    said = pipeline(*command).output
    before = files(run, "even")
    assert "selection even: 9 samples" in said and re.search(r"recolour +\d+ +\d+ +3 +3", said)
    description = json.loads(before[1])
    assert description["selection"]["at_most"] == {"per": "source", "count": 2, "bits": 0} and description["rows"] == 9
    for path in (run / "filter" / "selections").glob("even.*"):
        path.unlink()
    assert pipeline(*command).output == said and files(run, "even") == before
    assert pipeline(*command).output == said and files(run, "even") == before
    ids = pq.read_table(run / "filter" / "selections" / "even.parquet")["sample_id"].to_pylist()
    pipeline("select", "--run", run, "--name", "three", "--rule", "random", "--like", "even", "--quota-by", "task", "--quota", "like")
    assert strata(run, "three") == dict.fromkeys(TASKS, 3) and len(ids) == 9


def test_what_a_killed_command_was_sorting_is_removed(run: Path) -> None:
    for command in (["select", "--name", "two", "--rule", "top", "--count", 2], ["select", "diff", "selected", "control", "--images", 0]):
        left = [run / "filter" / folder / f"{storage.TEMPORARY}made" for folder in (".", "selections")]
        for folder in left:
            folder.mkdir()
            (folder / "rows").write_bytes(bytes(100))
        pipeline(*command, "--run", run)
        assert not any(folder.exists() for folder in left)


def test_the_configurations_control_has_the_strata_of_the_selection(run: Path) -> None:
    assert strata(run, "control") == strata(run, "selected") and sum(strata(run, "control").values()) == 10
    command = ["select", "--run", run, "--name", "control", "--rule", "random", "--like", "selected"]
    command += ["--quota-by", "task", "--quota", "like"]
    said, before = pipeline(*command).output, files(run, "control")
    for ending in ("parquet", "json"):
        (run / "filter" / "selections" / f"control.{ending}").unlink()
        assert pipeline(*command).output == said and files(run, "control") == before


def test_a_quota_that_falls_short_is_stated_and_refilled_if_asked(run: Path) -> None:
    command = ["select", "--run", run, "--name", "short", "--rule", "top", "--quota-by", "task", "--quota", "add=1", "--quota", "remove=20"]
    assert "missing by task (remove 20 asked, " in refusal(*command)
    said = pipeline(*command, "--short", "refill").output
    assert "selection short: 21 samples" in said and "were taken from other strata by rank" in said
    assert "--quota remove=many: expected one of proportional" in refusal(*command, "--quota", "remove=many")
    assert "--quota-by COLUMN and --quota SHARES belong together" in refusal(*command[:-4])
    assert "--at-most N and --per COLUMN belong together" in refusal(*command, "--per", "source")
    assert "--at-most: input should be greater than or equal to 1" in refusal(*command, "--per", "source", "--at-most", 0)


def test_clusters_can_be_a_key_of_the_metadata_or_the_source(run: Path) -> None:
    one = ["select", "--run", run, "--rule", "all", "--at-most", 1, "--per"]
    assert "2 samples" in pipeline(*one, "metadata.editor", "--name", "editors").output
    assert "10 samples" in pipeline(*one, "source", "--name", "sources").output
    assert "there is no column hue; it can be task, language, dataset" in refusal(*one, "hue", "--name", "hues")


def test_what_does_not_replay_or_is_damaged_is_one_sentence(run: Path) -> None:
    command = ["select", "--run", run, "--name", "few", "--rule", "top", "--count", 4]
    pipeline(*command)
    folder = run / "filter" / "selections"
    description = storage.read_checked(folder / "few.json", "")
    storage.publish_checked(folder / "few.json", description | {"sha256": "0" * 64})
    assert "selection few does not replay" in refusal(*command)
    assert "few.parquet is damaged" in refusal("select", "diff", "few", "selected", "--run", run)
    storage.publish_checked(folder / "few.json", description | {"scores": "others"})
    assert "selection few in" in (sentence := refusal("select", "diff", "few", "selected", "--run", run)) and "other scores" in sentence
    assert "has no selection none of its present scores (there: control, selected)" in refusal(
        "select", "diff", "none", "few", "--run", run
    )
    pipeline(*command)  # of the present scores again
    assert storage.read_checked(folder / "few.json", "") == description
    for damaged in ("[]", "null", "{}", (folder / "few.json").read_text().replace('"rows": 4', '"rows": 5')):
        (folder / "few.json").write_text(damaged)
        for asked in (command, ["select", "diff", "few", "selected", "--run", run], [*command[:-2], "--like", "few", "--name", "more"]):
            assert re.search(r"few\.json is damaged: .*; delete it and make the selection again", refusal(*asked))
    (folder / "few.json").unlink()
    pipeline(*command)
    assert storage.read_checked(folder / "few.json", "") == description


@pytest.mark.parametrize("how", ["a bit", "its end", "all"])
def test_scores_that_are_not_those_published_give_no_selection(run: Path, how: str) -> None:
    step = RunDir(run).step("filter")
    path = step.path / step.require().artifacts["scores"][0].path
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    if how == "a bit":
        path.write_bytes(bytes([*data[:50], data[50] ^ 64, *data[51:]]))
    if how == "all":
        path.unlink()
    expected = f"{path} is missing or changed since it was published; run `pipeline run filter` again"
    assert expected in refusal("select", "--run", run, "--name", "few", "--rule", "top", "--count", 4, "--shards")
    assert expected in refusal("select", "diff", "selected", "control", "--run", run)
    assert not (run / "filter" / "selections" / "few.json").exists()


def test_scores_of_a_version_with_fewer_gates_are_refused(run: Path) -> None:
    step = RunDir(run).step("filter")
    index = step.require()
    table = step.read("scores", schema=SCORED).drop_columns(["structure_match"])
    parts = publish_unit(step.path, "earlier", {"scores": table})
    step.publish(replace(index, artifacts={**index.artifacts, "scores": [parts["scores"]]}))
    sentence = "have no structure_match, as another version made them; run `pipeline run filter` again"
    assert sentence in refusal("select", "--run", run, "--name", "few", "--rule", "top", "--count", 4)


def test_numbers_that_no_selection_can_have_are_refused(run: Path) -> None:
    command = ["select", "--run", run, "--name", "few", "--rule", "top"]
    huge = 10**24
    assert "numbers" in refusal(*command, "--quota-by", "task", "--quota", f"{TASKS[0]}={huge}")
    assert "--at-most" in refusal(*command, "--count", 3, "--at-most", huge, "--per", "task")
    for field in ({"threshold": math.nan}, {"threshold": -math.inf}, {"count": 1, "value": "lower-bound", "sigmas": math.inf}):
        with pytest.raises(ValidationError, match="finite"):
            SelectionConfig.model_validate({"name": "few", "rule": "top"} | field)


def test_two_selections_are_compared(run: Path, tmp_path: Path) -> None:
    pipeline("select", "--run", run, "--name", "sure", "--rule", "top", "--value", "lower-bound", "--sigmas", 2, "--count", 12)
    page = tmp_path / "page.html"
    said = pipeline("select", "diff", "selected", "sure", "--run", run, "--page", page, "--images", 3).output
    a, b = (pq.read_table(run / "filter" / "selections" / f"{name}.parquet")["sample_id"].to_pylist() for name in ("selected", "sure"))
    common = [name for name in a if name in b]
    assert re.search(rf"both +{len(common)} ", said) and re.search(rf"only sure +{12 - len(common)} ", said)
    assert f"Jaccard {len(common) / (22 - len(common)):.3f}" in said
    rank = stats.spearmanr([a.index(name) for name in common], [b.index(name) for name in common]).statistic
    assert f"rank correlation of the common part {rank:.2f}".replace("-", "−") in said
    html = page.read_text()
    assert html.count("difference ×3") == min(3, 10 - len(common)) + min(3, 12 - len(common))
    assert "put cat" in html and "<script" not in html and "http" not in html.replace("http-equiv", "")
    default = pipeline("select", "diff", "selected", "control", "--run", run, "--by", "metadata.editor", "--images", 0).output
    assert f"page: {run}/selection-selected-control.html" in default and re.search(r"brush +\d", default)


def test_the_interval_of_a_rank_correlation_covers_it() -> None:
    """200 samples of 60 pairs from a normal distribution with correlation 0.6, whose rank correlation is known."""
    rng = np.random.default_rng(0)
    truth = 6 / np.pi * np.arcsin(0.3)
    hits = 0
    for _ in range(200):
        pairs = rng.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], 60)
        found = difference.spearman(pairs[:, 0], pairs[:, 1])
        assert found is not None and found.low is not None and found.high is not None
        assert found.value == pytest.approx(stats.spearmanr(pairs[:, 0], pairs[:, 1]).statistic)
        hits += found.low <= truth <= found.high
    assert hits >= 180
    assert difference.spearman(np.arange(3), np.arange(3)) is None
    same = difference.spearman(np.arange(9), np.arange(9))
    assert same is not None and same.value == pytest.approx(1)


def test_a_plan_says_how_many_edits_selections_keep_where_there_are_scores(tmp_path: Path) -> None:
    above = {"name": "above", "rule": "top", "threshold": 0.0}
    run = scored_run(tmp_path, selections=(above, {"name": "control", "rule": "random", "like": "above"}))
    flow = load(run.path / "config.yaml").flow
    count = sum(row["overall_mean"] >= 0 for row in run.step("filter").read("scores").to_pylist())
    assert 0 < count < 30
    before = f"selected (top 10: 10 of the scored edits), above (top within the threshold 0: {count} of the scored edits)"
    assert f"{before}, control (random as many as above: {count} of the scored edits)" in plan(flow, run.path)
    unscored = "selected (top 10), above (top within the threshold 0: its number is known after scoring), control ("
    assert unscored in plan(flow, tmp_path / "none")
    assert flow.filter is not None
    changed = [SelectionConfig(name="half", rule="top", quantile=0.5), SelectionConfig(name="many", rule="top", count=31)]
    said = selection_sizes.described(changed, run.step("filter"))
    assert said.startswith("half (top within the quantile 0.5: 15 of the scored edits), ")
    assert "), many (top 31: not possible with the present scores, count" in said
