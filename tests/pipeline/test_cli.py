"""The command line as a newcomer meets it: help, mistakes, looking at runs, selections, shards, ratings."""

from __future__ import annotations

import csv
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import torch
from click.testing import CliRunner
from command import copied, finished, pipeline, refusal
from paths import ROOT
from rated_run import make_run

from pipeline import cli, flow
from pipeline.commands import run
from pipeline.commands.common import Options, common
from stages.config import FlowConfig
from stages.engine import storage

DEMO = ROOT / "configs" / "demo.yaml"


def commands(group: click.Group = cli.main, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, command in group.commands.items():
        yield from commands(command, (*path, name)) if isinstance(command, click.Group) else [(*path, name)]


@pytest.fixture(scope="module")
def small(cluster: object, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished(tmp_path_factory.getbasetemp())


@pytest.mark.parametrize("command", list(commands()), ids=lambda path: " ".join(path) or "pipeline")
def test_help_has_an_example_of_the_command_with_options_that_it_has(command: tuple[str, ...]) -> None:
    text = pipeline(*command, "--help").output
    assert max(map(len, text.splitlines())) <= 80 and "None" not in text, text
    assert not re.search(r"^\S*(Error|Traceback)", text)
    example = next(line for line in text.splitlines() if re.match(rf" +(Try it: +)?pipeline {' '.join(command)}", line))
    named = example.split("pipeline ")[1].split()
    target: click.Command = cli.main
    while isinstance(target, click.Group):
        target = target.commands[named.pop(0)]
    known = {option for parameter in target.params for option in parameter.opts}
    assert {word for word in named if word.startswith("--")} <= known
    for file in (word for word in named if word.endswith(".yaml")):
        assert (ROOT / file).exists()


def test_shared_options_become_one_object_and_the_others_stay_arguments(tmp_path: Path) -> None:
    @click.command()
    @common
    @click.option("--count", type=int)
    @click.option("--force", is_flag=True)
    def command(options: Options, count: int) -> None:
        print(options, count, options.loaded.flow.seed, options.run.path, options.run.path.exists())

    given = ["--config", str(DEMO), "--run", str(tmp_path / "x"), "--count", "2", "--force", "seed=5"]
    expected = Options(str(DEMO), str(tmp_path / "x"), None, ("seed=5",), force=True)
    assert CliRunner().invoke(command, given).output == f"{expected} 2 5 {tmp_path / 'x'} False\n"
    assert [parameter.name for parameter in command.params] == ["config_path", "address", "run_path", "overrides", "count", "force"]


def test_the_table_of_steps_is_the_one_of_commands_and_modules() -> None:
    group = cli.main.commands["run"]
    assert isinstance(group, click.Group)
    assert list(group.commands) == ["all", *(step.name for step in flow.STEPS if step.command.startswith("pipeline run"))]
    for step in flow.STEPS:
        assert step.section in FlowConfig.model_fields and callable(importlib.import_module(step.module).run)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["frobnicate"], "No such command 'frobnicate'"),
        (["run", "frobnicate"], "No such command 'frobnicate'"),
        (["run", "filter"], "give --config FILE"),
        (["status"], "give --config FILE"),
        (["run", "filter", "--config", DEMO, "--worker", "3"], "No such option '--worker'"),
        (["annotate", "ingest", "--config", DEMO], "Missing option '--file'"),
        (["annotate", "export", "--config", DEMO, "--limit", "0"], "0 is not in the range x>=1"),
        (["select", "--config", DEMO, "--name", "x", "--rule", "best"], "'best' is not one of 'top'"),
        (["select", "--config", DEMO, "--name", "x", "--rule", "top", "--count", "many"], "'many' is not a valid integer"),
        (["shards", "verify"], "Missing argument 'FOLDER'"),
    ],
)
def test_wrong_usage_ends_with_2(arguments: list[object], sentence: str) -> None:
    assert sentence in refusal(*arguments, code=2)


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["reward.trainning.steps=3"], "unknown key reward.trainning; did you mean training?"),
        (["reward.training.steps=many"], "reward.training.steps: input should be a valid integer"),
        (["reward.training.steps"], "is not of the form key.path=value"),
        (["=3"], "is not of the form key.path=value"),
        (["seed.of.all=3"], "seed is a value, it has no key of"),
        (["reward.training.steps=[3"], "is not valid YAML"),
        (["generate.editors.9.name=x"], "generate.editors is a list of 6"),
        (["seed=-1"], "command line (seed=-1): seed: input should be greater than or equal to 0"),
        (["name=../elsewhere"], "name: string should match pattern"),
    ],
)
def test_a_wrong_override_is_one_sentence(overrides: list[str], sentence: str, tmp_path: Path) -> None:
    assert sentence in refusal("run", "generate", "--config", DEMO, "--run", tmp_path / "run", *overrides)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "does not exist"),
        (b"", "key name is missing"),
        (b"name: x\nsead: 3\n", "line 2: unknown key sead; did you mean seed?"),
        (b"name: x\nfilter: 3\n", "line 2: filter: input should be"),
        (b"name: [x\n", "not valid YAML"),
        (b"name: x\x00\n", "not valid YAML (unacceptable character"),
        (b"name: 2026-13-45\n", "not valid YAML (month must be in 1..12)"),
        (b"name: x\n? [a]\n: b\n", "line 2: not valid YAML (found unhashable key)"),
        (b"name: !!python/object:os.path {}\n", "line 1: not valid YAML"),
        (b"name: &a [*a]\n", "contains itself"),
        (b"name: \xff\n", "is not UTF-8 text"),
    ],
)
def test_a_configuration_that_cannot_be_read_is_one_sentence(content: bytes | None, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    if content is not None:
        path.write_bytes(content)
    found = refusal("plan", "--config", path)
    assert sentence in found and "mine.yaml" in found
    assert "cannot be read (Is a directory)" in refusal("plan", "--config", tmp_path)


@pytest.mark.parametrize(
    ("step", "sentence"),
    [
        ("preferences", "step generate is not done"),
        ("train-reward", "step preferences is not done"),
        ("evaluate-reward", "step train-reward is not done"),
        ("filter", "step train-reward is not done"),
        ("finetune", "step filter is not done"),
        ("evaluate-editor", "step finetune is not done"),
    ],
)
def test_a_step_before_its_turn_names_the_step_to_run(step: str, sentence: str, tmp_path: Path) -> None:
    assert sentence in refusal("run", step, "--config", DEMO, "--run", tmp_path / "run")
    assert not (tmp_path / "run").exists()  # a failed command leaves no run directory that was not there


def test_a_step_without_its_section_says_so(tmp_path: Path) -> None:
    found = refusal("run", "generate", "--config", ROOT / "configs" / "sharegpt4o-mini.yaml", "--run", tmp_path / "run")
    assert "the configuration has no section generate" in found


@pytest.mark.parametrize("command", ["status", "report"])
def test_a_run_that_is_not_there_is_one_sentence(command: str, tmp_path: Path) -> None:
    assert "there is no run;" in refusal(command, "--run", tmp_path / "none")
    assert "there is no run directory" in refusal(command, "--config", DEMO, "--run", tmp_path / "none")


def test_a_run_in_which_no_step_is_done_has_no_report(tmp_path: Path) -> None:
    (tmp_path / "run" / "generate").mkdir(parents=True)
    assert f"no step of {tmp_path / 'run'} is done" in refusal("report", "--config", DEMO, "--run", tmp_path / "run")
    assert not (tmp_path / "run" / "report.html").exists()


@pytest.mark.parametrize(("run", "sentence"), [("s3://bucket/run", "must be on a (shared) file system"), ("{file}/run", "not writable")])
def test_a_run_directory_that_cannot_be_is_one_sentence(run: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert sentence in refusal("run", "generate", "--config", DEMO, "--run", run.format(file=tmp_path / "file"))


def test_an_address_where_nobody_listens_is_one_sentence(tmp_path: Path) -> None:
    """In a process of its own: here Ray is running already."""
    command = [
        sys.executable,
        "-m",
        "pipeline.cli",
        "run",
        "generate",
        "--config",
        str(DEMO),
        "--run",
        str(tmp_path),
        "--address",
        "127.0.0.1:1",
    ]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 1 and "Traceback" not in found.stderr
    assert re.search(r"^error: --address 127\.0\.0\.1:1: no Ray cluster answers there.*Connection refused", found.stderr, re.MULTILINE)


def test_config_show_and_plan_before_anything_runs(tmp_path: Path) -> None:
    shown = pipeline("config", "show", "--config", DEMO, "seed=3").output
    assert "seed: 3  # command line (seed=3)" in shown and f"# {DEMO}, line" in shown and "# default" in shown
    planned = pipeline("plan", "--config", DEMO, "--run", tmp_path / "none").output
    assert "evaluate-editor" in planned and "to do" in planned and not (tmp_path / "none").exists()


def test_a_run_alone_uses_its_frozen_configuration(small: Path) -> None:
    run = small / "run"
    shown = pipeline("config", "show", "--run", run).output
    assert f"unit_rows: 4  # {run}/config.yaml, line" in shown
    assert re.search(r"filter +done +in 12 out 12 quarantined 0 +selected: best 6, full 12", pipeline("status", "--run", run).output)
    assert "up to date" in pipeline("run", "filter", "--run", run).output
    assert (run / "report.html").read_text().startswith("<!")
    assert f"report: {run}/report.html" in pipeline("report", "--run", run).output
    assert re.search(r"filter +done  ", pipeline("plan", "--run", run).output)
    assert re.search(
        r"filter +to redo: filter.token_budget and 1 more changed  ",
        pipeline("plan", "--run", run, "filter.token_budget=77", "seed=9").output,
    )


def test_a_damaged_step_is_repaired_and_says_so(small: Path, tmp_path: Path) -> None:
    run = copied(small, tmp_path / "run")
    (table,) = (run / "filter" / "selections").glob("best.parquet")
    table.write_bytes(table.read_bytes()[:-1])
    assert re.search(r"filter +repaired ", pipeline("run", "filter", "--run", run).output)
    assert re.search(r"filter +up to date ", pipeline("run", "filter", "--run", run).output)


def test_a_run_of_other_code_still_shows_its_status(small: Path, tmp_path: Path) -> None:
    run = copied(small, tmp_path / "run")
    index = storage.read_checked(run / "filter" / "index.json", "")
    del index["results"]["selections"]
    storage.publish_checked(run / "filter" / "index.json", index)
    assert "its results have no selections" in pipeline("status", "--run", run).output


def test_a_damaged_index_is_one_sentence(small: Path, tmp_path: Path) -> None:
    run = copied(small, tmp_path / "run")
    index = run / "filter" / "index.json"
    index.write_text(index.read_text()[:100])
    for command in (["status"], ["run", "filter"], ["report"]):
        assert f"{index} is not valid JSON" in refusal(*command, "--run", run)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--rule", "top"], "needs a size or a bound: one of count, fraction, like, threshold and quantile"),
        (["--rule", "top", "--count", 3, "--fraction", 0.2], "was given count and fraction: give one of them"),
        (["--rule", "all", "--count", 3], "leave out count, fraction"),
        (["--rule", "top", "--count", 0], "--count: input should be greater than or equal to 1 (given: 0)"),
        (["--rule", "random", "--fraction", 1.5], "--fraction: input should be less than or equal to 1 (given: 1.5)"),
        (["--rule", "top", "--count", 1000], "count 1,000 is more than the 12 scored edits"),
        (["--rule", "top", "--count", 3, "--name", "Mine"], "--name 'Mine': use small letters, digits and hyphens"),
        (["--rule", "top", "--count", 3, "--name", "best"], "choose another name"),
    ],
)
def test_a_wrong_selection_is_one_sentence(small: Path, options: list[object], sentence: str) -> None:
    assert sentence in refusal("select", "--run", small / "run", "--name", "mine", *options)
    assert not (small / "run" / "filter" / "selections" / "mine.parquet").exists()


def test_another_selection_with_shards(small: Path, tmp_path: Path) -> None:
    run = copied(small, tmp_path / "run")
    said = pipeline("select", "--run", run, "--name", "three", "--rule", "top", "--count", 3, "--shards").output
    assert "selection three: 3 samples" in said and f"shards: {run}/filter/shards/three" in said
    assert "all shards are sound" in pipeline("shards", "verify", run / "filter" / "shards" / "three").output


def test_shards_verify(small: Path, tmp_path: Path) -> None:
    folder = copied(small, tmp_path / "run") / "filter" / "shards" / "full"
    assert pipeline("shards", "verify", folder).output == f"{folder}: all shards are sound\n"
    tar = folder / "shard-000001.tar"
    sound = tar.read_bytes()
    tar.write_bytes(sound[:2000] + bytes([sound[2000] ^ 1]) + sound[2001:])
    assert f"{folder}: 1 problem; delete the damaged files and run the filter step again" in refusal("shards", "verify", folder)
    tar.write_bytes(sound[: len(sound) // 2])
    assert "1 problem" in refusal("shards", "verify", folder)
    tar.unlink()
    assert "1 problem" in refusal("shards", "verify", folder)
    (tmp_path / "empty").mkdir()
    assert "is no folder of shards; name one, such as RUN/filter/shards/selected" in refusal("shards", "verify", tmp_path / "empty")
    assert "nowhere has no index.json: it was not finished, or is no folder of shards" in refusal("shards", "verify", tmp_path / "nowhere")
    assert "foo://bucket/x/index.json cannot be opened (Protocol not known: foo)" in refusal("shards", "verify", "foo://bucket/x")


@pytest.fixture
def rated(tmp_path: Path) -> tuple[Path, Path]:
    """A configuration and a run whose candidates are there."""
    run = make_run(tmp_path / "run").run.path
    config = tmp_path / "rated.yaml"
    config.write_text("name: rated\ngenerate: {editors: [{name: world/quill}]}\n")
    return config, run


def fill(template: Path, target: Path, annotator: str = "ann") -> Path:
    """What a rater does with the exported table."""
    with template.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for number, row in enumerate(rows):
        row |= {"annotator_id": annotator, "score": str(1 + number % 4)}
    with target.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return target


def test_work_goes_out_and_comes_back_once(rated: tuple[Path, Path], tmp_path: Path) -> None:
    config, run = rated
    said = pipeline("annotate", "export", "--config", config, "--run", run, "--limit", 2).output
    folder = Path(said.removeprefix("exported for the raters: ").strip())
    assert len((folder / "groups.jsonl").read_text().splitlines()) == 2
    filled = fill(folder / "ratings-template.csv", tmp_path / "ann.csv")
    first = pipeline("annotate", "ingest", "--run", run, "--file", filled).output
    assert re.search(r"ann\.csv +new +16 +16\n", first)
    ledger = (run / "annotate" / "index.json").read_bytes()
    again = pipeline("annotate", "ingest", "--run", run, "--file", filled).output
    assert re.search(r"ann\.csv +known +16 +16\n", again)
    assert (run / "annotate" / "index.json").read_bytes() == ledger
    other = fill(folder / "ratings-template.csv", tmp_path / "bob.csv", "bob")
    assert "inter-rater agreement" in pipeline("annotate", "ingest", "--run", run, "--file", other).output
    assert (run / "annotate" / "index.json").read_bytes() != ledger


def test_files_of_ratings_that_cannot_be_read_are_one_sentence(rated: tuple[Path, Path], tmp_path: Path) -> None:
    config, run = rated
    pipeline("annotate", "export", "--config", config, "--run", run)
    template = run / "annotate" / "export" / "ratings-template.csv"
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "cut.csv").write_text(fill(template, tmp_path / "x.csv").read_text().replace("candidate_id", "candidate"))
    (tmp_path / "empty.csv").write_text("")
    for name, sentence in [
        ("nowhere.csv", "nowhere.csv cannot be read (No such file or directory)"),
        ("binary.csv", "binary.csv is not UTF-8 text"),
        ("cut.csv", "cut.csv lacks the column candidate_id"),
        ("empty.csv", "empty.csv is empty"),
    ]:
        assert sentence in refusal("annotate", "ingest", "--config", config, "--run", run, "--file", tmp_path / name)
    assert not (run / "annotate" / "index.json").exists()
    untouched = pipeline("annotate", "ingest", "--config", config, "--run", run, "--file", template).output
    assert re.search(r"ratings-template\.csv +new +48 +0 +annotator-empty 48", untouched)


def test_torch_is_asked_for_gpus_only_where_a_driver_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: asked.append("asked") or 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: f"GPU {number}")
    monkeypatch.setattr(run, "GPU_DEVICES", (str(tmp_path / "none"),))
    assert run._gpus() == [] and not asked
    monkeypatch.setattr(run, "GPU_DEVICES", (str(tmp_path / "none"), str(tmp_path)))
    assert run._gpus() == ["GPU 0"]
