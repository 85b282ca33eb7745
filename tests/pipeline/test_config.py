"""Configuration: shipped files load, mistakes become sentences with file, line and key, overrides and origins."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from paths import ROOT

from pipeline import config, config_keys
from pipeline.config_file import KeyPath, dotted, shipped
from pipeline.planning import compute
from pipeline.planning.plan import plan

MINIMAL = """\
name: x
world: {size: 32}
filter:
  input: {dataset: world-edits, count: 100}
  selections:
    - {name: best, rule: top, fraction: 0.4}
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["demo", "demo-small", "demo-images", "photographs", "sharegpt4o-mini", "editreward-data"])
def test_shipped_configurations_load_and_plan(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute, "_rehearsed", lambda *_: compute.Compute(None, None, None, "not rehearsed here"))  # paper.yaml is, below
    loaded = config.load(ROOT / "configs" / f"{name}.yaml")
    assert loaded.flow.name == name
    text = plan(loaded.flow, tmp_path / "none")
    assert "filter" in text


def test_shipped_configurations_have_names_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert {config.load(name).flow.name for name in shipped()} == {name.rpartition("/")[2] for name in shipped()}
    for name, path in shipped().items():
        assert path == ROOT / "configs" / f"{name}.yaml" and ".." not in re.sub(r"^base: \.\./", "", path.read_text(), flags=re.MULTILINE)
    (tmp_path / "mine.yaml").write_text("base: demo\nname: mine\nseed: 4\n")
    assert (config.load("mine.yaml").flow.seed, config.load("mine.yaml").flow.filter) == (4, config.load("demo").flow.filter)
    (tmp_path / "demo").write_text("name: of-this-folder\n")
    assert config.load("demo").flow.name == "of-this-folder"
    with pytest.raises(ValueError, match=r"demos does not exist; the shipped ones are demo, demo-images, demo-small, "):
        config.load("demos")
    monkeypatch.chdir(ROOT)
    assert config.load("demo-small").origins[("seed",)] == "configs/demo-small.yaml, line 3"


def test_a_path_beside_the_file_is_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, MINIMAL.replace("{dataset: world-edits, count: 100}", "{dataset: triplets, path: !beside mine/edits.jsonl}"))
    monkeypatch.chdir(tmp_path)
    for name, expected in ((path, str(tmp_path / "mine/edits.jsonl")), ("x.yaml", "mine/edits.jsonl")):
        found = config.load(name).flow.filter
        assert found is not None and found.input.model_dump()["path"] == expected
    with pytest.raises(ValueError, match="override 'name=!beside y': '!beside y' is not valid YAML"):
        config.load(path, ["name=!beside y"])
    with pytest.raises(ValueError, match=r"x\.yaml, line 4: not valid YAML \(!beside is for a path"):
        config.load(write(tmp_path, MINIMAL.replace("{dataset: world-edits, count: 100}", "!beside {a: 1}")))


def test_explain_says_the_default_that_a_configuration_gets() -> None:
    loaded = config.load("demo")
    defaults = {path: value for path, value in leaves(loaded.flow.model_dump(mode="json")) if path not in loaded.origins}
    assert len(defaults) > 100
    for path, value in defaults.items():
        said = [line.partition(": ")[2] for line in config_keys.explain(dotted(path)).splitlines() if line.startswith("  default: ")]
        assert value in [yaml.safe_load(text) for text in said], path


def leaves(value: object, path: KeyPath = ()) -> Iterator[tuple[KeyPath, object]]:
    """Key path and value of what is no section."""
    if not isinstance(value, dict):
        yield path, value
        return
    for key, entry in value.items():
        yield from leaves(entry, (*path, key))


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("seed", ["type: integer, >= 0", "default: 0"]),
        ("finetune.base.training.learning_rate", ["default: 0.003", "Peak learning rate of AdamW."]),
        ("reward.training.precision", ["type: fp32 or bf16"]),
        ("filter.selections.0.count", ["filter.selections.0.count", "type: integer or null, >= 1"]),
        ("filter.input.path", ["filter.input.path (where dataset: triplets)", "default: required"]),
        ("reward.model.heads.hidden.0", ["type: list of integer", "default: [96]"]),
        (
            "filter.selections.0.quotas.numbers.add",
            ["type: mapping from text to integer or null", "Samples per stratum, instead of shares"],
        ),
        ("ray", ["keys below it:", "object_store_mb  Object store of a local cluster in MiB"]),
    ],
)
def test_explain_prints_type_default_and_description(key: str, expected: list[str]) -> None:
    lines = [line.strip() for line in config_keys.explain(key).splitlines()]
    assert set(expected) <= set(lines)


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        ("reward.trainning", "there is no key trainning at reward; did you mean training?"),
        ("sead", "there is no key sead at the top; did you mean seed?"),
        ("seed.x", "there is no key x at seed; known there: nothing, it is a value"),
        ("0", "'0' names no key"),
        ("ray.num_cpus.3", "ray.num_cpus is no list, it has no entry 3"),
    ],
)
def test_explain_of_an_unknown_key_is_one_sentence(key: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        config_keys.explain(key)


def test_editreward_data_trains_as_the_paper_does() -> None:
    given, paper = (config.load(ROOT / "configs" / f"{name}.yaml").flow for name in ("editreward-data", "paper"))
    assert given.reward == paper.reward and given.preferences.ties == paper.preferences.ties


def test_paper_plan_has_the_papers_volume(tmp_path: Path) -> None:
    flow = config.load(ROOT / "configs" / "paper.yaml").flow
    text = plan(flow, tmp_path / "none")
    assert flow.name == "paper" and "filter" in text
    assert "9,557 sources x 12 candidates" in text
    assert "133,798 ratings; 199 to 398 hours of annotators" in text  # 9,557 x 7 x 2
    assert "200,697 pairs" in text  # 9,557 x 21
    assert "23,833 steps of 16 pairs: 762,656 edits" in text  # 2 epochs of the 9,079 x 21 pairs that are not held out
    assert "Qwen/Qwen2.5-VL-7B-Instruct rehearsed on the meta device" in text and "FLOP unknown" not in text
    assert "cannot run yet" in text and "flux-kontext" in text
    assert "missing input: data/MagicBrush/test/edit_turns.json" in text


ABLATIONS = sorted((ROOT / "configs" / "ablations").glob("*.yaml"))


@pytest.mark.parametrize("path", ABLATIONS, ids=lambda path: path.stem)
def test_ablations_load_and_plan_the_reward_model_alone(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute, "_rehearsed", lambda *_: compute.Compute(None, None, None, "not rehearsed here"))  # takes seconds each
    flow = config.load(path).flow
    assert flow.name == path.stem and flow.filter is None and flow.finetune is None
    text = plan(flow, tmp_path / "none")
    assert "pairs" in text and ("FLOP unknown" in text and "not rehearsed here" in text) == (
        flow.reward.model.backbone.pretrained is not None
    )


def test_each_ablation_differs_from_its_reference_in_what_its_table_varies() -> None:
    """Tables 4, 5 and 7 vary around one model: several heads, their mean, uncertainty ranking, Qwen2.5-VL-7B, ties disentangled."""
    reference = flat(config.load(ROOT / "configs" / "ablations" / "table4-multi-mean.yaml").flow.model_dump(mode="json"))
    varied = {
        "table4-regression": {"reward.loss.kind": "regression", "reward.model.aggregation": "sum"},
        "table4-shared-mean": {"reward.model.heads.kind": "shared"},
        "table4-multi-min": {"reward.model.aggregation": "min"},
        "table4-multi-sum": {"reward.model.aggregation": "sum"},
        "table4-multi-mean": {},
        "table5-qwen2.5-vl-3b": {"reward.model.backbone.pretrained": "Qwen/Qwen2.5-VL-3B-Instruct"},
        "table5-mimo-vl-7b": {"reward.model.backbone.pretrained": "XiaomiMiMo/MiMo-VL-7B-SFT-2508"},
        "table7-without-disentangling": {"preferences.ties": "off"},
    }
    assert {path.stem for path in ABLATIONS} == varied.keys() | {"world"}
    for name, expected in varied.items():
        values = flat(config.load(ROOT / "configs" / "ablations" / f"{name}.yaml").flow.model_dump(mode="json"))
        assert values.keys() == reference.keys()
        assert {key: value for key, value in values.items() if value != reference[key] and key != "name"} == expected


def flat(value: object, path: str = "") -> dict[str, object]:
    if not isinstance(value, dict) or not value:
        return {path: value}
    return {key: leaf for name, entry in value.items() for key, leaf in flat(entry, f"{path}.{name}" if path else name).items()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (MINIMAL + "reward:\n  trainning: {steps: 3}\n", ["x.yaml, line 8", "unknown key reward.trainning", "did you mean training?"]),
        (MINIMAL + "reward:\n  training:\n    steps: many\n", ["x.yaml, line 9", "reward.training.steps", "integer", "'many'"]),
        (MINIMAL.replace("count: 100", "cuont: 100"), ["x.yaml, line 4", "unknown key filter.input.cuont", "did you mean count?"]),
        (MINIMAL.replace("world-edits", "world-edit"), ["x.yaml, line 4", "filter.input", "did you mean world-edits?"]),
        (MINIMAL.replace("fraction: 0.4", "fraction: 1.4"), ["x.yaml, line 6", "filter.selections.0.fraction", "less than or equal to 1"]),
        (MINIMAL.replace("fraction: 0.4", "count: 3, fraction: 0.4"), ["x.yaml, line 6", "was given count and fraction: give one of them"]),
        (MINIMAL.replace("name: best, ", ""), ["x.yaml, line 6", "filter.selections.0.name", "missing"]),
        (MINIMAL.replace("name: x\n", ""), ["key name is missing"]),
        (MINIMAL + "name: y\n", ["x.yaml, line 7", "duplicate key name"]),
        (
            MINIMAL + "reward:\n  pretraining: {batch_size: 2}\n  workers: 3\n",
            ["x.yaml, line 7", "reward", "pretraining.batch_size is 2, but workers is 3, and each worker needs an item of every batch"],
        ),
        (
            MINIMAL + "finetune:\n  training: {batch_size: 2}\n  workers: 3\n",
            ["x.yaml, line 7", "finetune", "training.batch_size is 2, but workers is 3, and each worker needs a sample of every batch"],
        ),
        (MINIMAL + "reward: [", ["x.yaml, line", "not valid YAML"]),
        ("- a\n", ["x.yaml, line 1", "mapping"]),
    ],
)
def test_mistakes_are_located(tmp_path: Path, text: str, expected: list[str]) -> None:
    with pytest.raises(ValueError) as caught:
        config.load(write(tmp_path, text))
    for part in expected:
        assert part in str(caught.value)


def test_missing_file_is_named() -> None:
    with pytest.raises(ValueError, match=r"nowhere\.yaml does not exist"):
        config.load("nowhere.yaml")


def test_overrides_replace_and_are_named(tmp_path: Path) -> None:
    path = write(tmp_path, MINIMAL)
    loaded = config.load(path, ["reward.training.steps=7", "filter.selections.0.fraction=0.2", "seed=3"])
    assert loaded.flow.reward.training.steps == 7
    assert loaded.flow.filter is not None and loaded.flow.filter.selections[0].fraction == 0.2
    shown = config.show(loaded)
    assert "steps: 7  # command line (reward.training.steps=7)" in shown
    assert f"size: 32  # {path}, line 2" in shown
    assert "learning_rate: 0.0015  # default" in shown
    with pytest.raises(ValueError, match=r"command line \(sead=3\): unknown key sead; did you mean seed\?"):
        config.load(path, ["sead=3"])
    with pytest.raises(ValueError, match=r"key\.path=value"):
        config.load(path, ["seed"])
    with pytest.raises(ValueError, match="list of 1"):
        config.load(path, ["filter.selections.4.count=2"])


def test_a_file_may_start_from_another_one(tmp_path: Path) -> None:
    write(tmp_path, MINIMAL + "reward:\n  training: {steps: 9, seed: 4}\n")
    (tmp_path / "sub").mkdir()
    path = tmp_path / "sub" / "y.yaml"
    path.write_text(
        "base: ../x.yaml\nname: y\nworld: null\nreward:\n  training: {steps: 7}\nfilter:\n  selections: [{name: all, rule: all}]\n"
    )
    loaded = config.load(path, ["reward.training.seed=5"])
    flow = loaded.flow
    assert (flow.name, flow.world, flow.reward.training.steps, flow.reward.training.seed) == ("y", None, 7, 5)
    assert flow.filter is not None and flow.filter.input.dataset == "world-edits"
    assert [choice.name for choice in flow.filter.selections] == ["all"]  # a list takes the place of the list
    shown = config.show(loaded)
    at = tmp_path / "sub" / ".." / "x.yaml"
    assert f"steps: 7  # {path}, line 5" in shown and f"count: 100  # {at}, line 4" in shown
    assert f"world: null  # {path}, line 3" in shown and f"rule: all  # {path}, line 7" in shown
    assert "seed: 5  # command line (reward.training.seed=5)" in shown
    assert config.load(write(tmp_path, config.dump(flow))).flow == flow  # the frozen copy stands alone


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("base: 3\n", ["x.yaml, line 1: base: expected a configuration file", "3"]),
        ("base: nowhere.yaml\nname: x\n", ["x.yaml, line 1: base:", "nowhere.yaml does not exist"]),
        ("name: x\nbase: x.yaml\n", ["x.yaml, line 2: base: x.yaml has a base itself"]),
        ("base: other.yaml\nname: x\nfilter: {cuont: 3}\n", ["x.yaml, line 3", "unknown key filter.cuont"]),
        ("base: bad.yaml\n", ["x.yaml, line 1: base:", "bad.yaml", "not valid YAML"]),
        ("base: wrong.yaml\nname: x\n", ["wrong.yaml, line 2", "unknown key sead"]),
    ],
)
def test_mistakes_with_a_base_are_located(tmp_path: Path, text: str, expected: list[str]) -> None:
    (tmp_path / "other.yaml").write_text(MINIMAL)
    (tmp_path / "bad.yaml").write_text("reward: [")
    (tmp_path / "wrong.yaml").write_text("name: w\nsead: 3\n")
    with pytest.raises(ValueError) as caught:
        config.load(write(tmp_path, text))
    for part in expected:
        assert part in str(caught.value)


def test_show_and_dump_read_back(tmp_path: Path) -> None:
    loaded = config.load(ROOT / "configs" / "demo.yaml")
    for text in (config.show(loaded), config.dump(loaded.flow)):
        assert config.load(write(tmp_path, text)).flow == loaded.flow


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=8,
    )
)
def test_any_yaml_loads_or_is_refused_with_a_sentence(tmp_path_factory: pytest.TempPathFactory, value: object) -> None:
    path = tmp_path_factory.mktemp("any") / "any.yaml"
    path.write_text(yaml.safe_dump(value, allow_unicode=True), encoding="utf-8")
    try:
        config.load(path)
    except ValueError as error:
        assert "any.yaml" in str(error)
