"""Configuration: shipped files load, mistakes become sentences with file, line and key, overrides and origins."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as st

from pipeline import config
from pipeline.plan import plan

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


@pytest.mark.parametrize("name", ["demo", "demo-small", "sharegpt4o-mini", "paper"])
def test_shipped_configurations_load_and_plan(name: str, tmp_path: Path) -> None:
    loaded = config.load(ROOT / "configs" / f"{name}.yaml")
    assert loaded.flow.name == name
    text = plan(loaded.flow, tmp_path / "none")
    assert "filter" in text


def test_paper_plan_has_the_papers_volume(tmp_path: Path) -> None:
    text = plan(config.load(ROOT / "configs" / "paper.yaml").flow, tmp_path)
    assert "9,557 sources x 12 candidates" in text
    assert "133,798 ratings" in text  # 9,557 x 7 x 2
    assert "200,697 pairs" in text  # 9,557 x 21
    assert "cannot run yet" in text and "flux-kontext" in text
    assert "missing input: data/magicbrush.jsonl" in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (MINIMAL + "reward:\n  trainning: {steps: 3}\n", ["x.yaml, line 8", "unknown key reward.trainning", "did you mean training?"]),
        (MINIMAL + "reward:\n  training:\n    steps: many\n", ["x.yaml, line 9", "reward.training.steps", "integer", "'many'"]),
        (MINIMAL.replace("count: 100", "cuont: 100"), ["x.yaml, line 4", "unknown key filter.input.cuont", "did you mean count?"]),
        (MINIMAL.replace("world-edits", "world-edit"), ["x.yaml, line 4", "filter.input", "'world-edits'"]),
        (MINIMAL.replace("fraction: 0.4", "fraction: 1.4"), ["x.yaml, line 6", "filter.selections.0.fraction", "less than or equal to 1"]),
        (MINIMAL.replace("fraction: 0.4", "count: 3, fraction: 0.4"), ["x.yaml, line 6", "exactly one of count and fraction"]),
        (MINIMAL.replace("name: best, ", ""), ["x.yaml, line 6", "filter.selections.0.name", "missing"]),
        (MINIMAL.replace("name: x\n", ""), ["key name is missing"]),
        (MINIMAL + "name: y\n", ["x.yaml, line 7", "key name stands there twice"]),
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


def test_show_and_dump_read_back(tmp_path: Path) -> None:
    loaded = config.load(ROOT / "configs" / "demo.yaml")
    for text in (config.show(loaded), config.dump(loaded.flow)):
        assert config.load(write(tmp_path, text)).flow == loaded.flow


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
