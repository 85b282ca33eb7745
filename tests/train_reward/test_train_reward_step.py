"""What the step train-reward knows and refuses before it trains."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rated_run import make_run, source

from reward.model.origin import Origin
from stages.annotate import step as annotate
from stages.preferences import step as preferences
from stages.train_reward import step as train_reward
from stages.train_reward.origin import origin_of


def test_a_run_without_groups_to_calibrate_on_is_refused_before_training(tmp_path: Path) -> None:
    context = make_run(tmp_path / "run", groups=4)  # the fifth would be held out
    annotate.run(context)
    preferences.run(context)
    with pytest.raises(ValueError, match=r"none of its 0 rated groups falls into the calibration half; rate more sources of that split"):
        train_reward.run(context)


def test_a_model_knows_its_domain_data_raters_and_days(tmp_path: Path) -> None:
    context = make_run(tmp_path / "run", groups=6)
    annotate.run(context)
    preferences.run(context)
    sources = context.run.step("generate").read("sources", ["source_id"])["source_id"].to_pylist()
    simulated = len([*(tmp_path / "run" / "annotate" / "simulated").glob("*.csv")])
    known = origin_of(context.run, sources)
    assert known == Origin(domains=("toy",), data={"world": 6}, raters={"simulated": simulated}, rated=("2025-01-06", "2025-01-06"))
    ratings = context.run.step("annotate").read("ratings", ["source_id", "annotator"]).to_pylist()
    of_one = {row["annotator"] for row in ratings if row["source_id"] == sources[0]}
    assert origin_of(context.run, sources[:1]).raters == {"simulated": len(of_one)} and len(of_one) < simulated
    for file in (tmp_path / "run" / "annotate" / "simulated").glob("*.csv"):
        file.unlink()
    assert origin_of(context.run, sources).raters == {"people": simulated}


def test_a_model_says_which_benchmarks_it_has_seen(tmp_path: Path) -> None:
    marked = [source(number, benchmark="gedit-bench" if number < 2 else "") for number in range(6)]
    context = make_run(tmp_path / "run", sources=marked)
    annotate.run(context)
    preferences.run(context)
    statistics = json.loads((tmp_path / "run" / "preferences" / "statistics.json").read_text())
    assert statistics["benchmarks"] == {"gedit-bench": 2}
    known = origin_of(context.run, [row["source_id"] for row in marked])
    assert known.benchmarks == {"gedit-bench": 2} and Origin.model_validate_json(known.model_dump_json()) == known
    assert known.lines()["benchmarks seen"] == "gedit-bench (2 rated groups): results there are not independent of this model"
