"""The cost model of `pipeline plan`, against values worked out by hand."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from paths import ROOT
from safetensors.numpy import save_file

from pipeline import config
from pipeline.planning import filter_cost, plan
from stages.datasets.config import TripletEdits
from stages.engine import storage
from stages.filter.config import FilterConfig
from stages.filter.selection.config import SelectionConfig


def test_gpu_hours_wall_time_and_storage_by_hand() -> None:
    """1.248e14 FLOP per pair take one GPU second at 312 TFLOP/s x 40 %; a pair is 2 MB; inspecting it takes 0.1 s of one core of two."""
    found = filter_cost.cost(46_539, 8, 1.248e14, kept=20_000, beside=False)
    assert found.gpu_hours == pytest.approx(46_539 / 3600)  # 12.93
    seconds = 0.1 / 2 + 1  # per pair and GPU: inspecting, then scoring
    assert found.wall_hours == pytest.approx(46_539 * seconds / 3600 / 8) and found.limit == "GPUs"
    assert (found.input_bytes, found.shard_bytes) == (93.078e9, 40e9)
    assert found.read_bytes_per_second == pytest.approx(8 * 2 * 2e6 / seconds)  # each pair twice
    assert filter_cost.cost(46_539, 512, 1.248e14, 0, beside=False).wall_hours == pytest.approx(found.wall_hours / 64)
    assert found.driver_bytes == 2e9 + 465_390
    beside = filter_cost.cost(46_539, 8, 1.248e14, kept=20_000, beside=True)
    assert beside.wall_hours == pytest.approx(found.gpu_hours / 8), "inspection takes no time of its own"


@pytest.mark.parametrize("beside", [True, False])
def test_a_small_model_waits_for_the_cores(beside: bool) -> None:
    found = filter_cost.cost(1_000_000, 64, 1e6, kept=0, beside=beside)
    assert found.limit == "cores" and found.wall_hours == pytest.approx(1_000_000 * 0.18 / 2 / 64 / 3600)
    assert found.read_bytes_per_second == pytest.approx(64 * 2 / 0.18 * 4e6)


def test_what_selections_keep() -> None:
    selections = [
        SelectionConfig(name="a", rule="top", count=20_000),
        SelectionConfig(name="b", rule="random", fraction=0.43),
        SelectionConfig(name="c", rule="all"),
    ]
    assert filter_cost.kept(selections, 46_539) == pytest.approx(20_000 + 0.43 * 46_539 + 46_539)
    assert filter_cost.kept(selections[:1], 5_000) == 5_000


def test_the_table_says_what_it_assumes() -> None:
    settings = {"input": {"dataset": "triplets", "path": "x"}, "selections": [{"name": "a", "rule": "top", "count": 20_000}]}
    text = filter_cost.table(FilterConfig.model_validate(settings), 1.248e14, "a model")
    lines = text.splitlines()
    assert "an estimate" in lines[0] and "40% of 312 TFLOP/s" in lines[0] and "a model" in lines[0]
    assert lines[1].endswith("2 cores per GPU; scored as they are inspected")
    dropping = {"gates": {name: {"action": "drop"} for name in ("size", "near_duplicate", "source_reuse")}}
    waits = "all are inspected before the first is scored, because near_duplicate and source_reuse may drop some"
    assert waits in filter_cost.table(FilterConfig.model_validate(settings | dropping), 1.248e14, "a model")
    assert (
        lines[4].split("  ")[0] == "46,539"
        and "12.9" in lines[4]
        and "1 h 36 min" in lines[4]
        and "93.1 GB" in lines[4]
        and "40.0 GB" in lines[4]
    )
    assert "512" in lines[-1] and "2.3 days" in lines[-1]  # 1.007 x 10^8 s of a GPU on 512 of them


def test_plan_shows_it_for_every_configuration_with_a_filter(tmp_path: Path) -> None:
    demo = config.load(ROOT / "configs" / "demo.yaml").flow
    assert "filter at other sizes, an estimate" in plan.plan(demo, tmp_path)
    assert "filter at other sizes" not in plan.plan(
        demo.model_copy(update={"filter": None, "finetune": None, "evaluate_editor": None}), tmp_path
    )


def test_a_saved_model_is_counted_from_its_weights(tmp_path: Path) -> None:
    demo = config.load(ROOT / "configs" / "demo.yaml").flow
    model = tmp_path / "model"
    flow = demo.model_copy(update={"filter": demo.filter.model_copy(update={"model": str(model)})})
    assert plan.flop_per_pair(flow) == (None, f"{model} contains no saved model")
    found = plan.plan(flow, tmp_path / "run")
    assert f"missing input: filter.model: there is no reward model at {model}" in found and re.search(r"filter +input missing  ", found)
    empty = tmp_path / "empty.jsonl"
    empty.write_bytes(b"")
    nothing = flow.model_copy(
        update={"filter": flow.filter.model_copy(update={"input": TripletEdits(dataset="triplets", path=str(empty))})}
    )
    assert f"missing input: {empty} is empty" in plan.plan(nothing, tmp_path / "run")
    model.mkdir()
    storage.publish_json(model / "config.json", {"reward_model": demo.reward.model.model_dump(mode="json")})
    save_file({"layer": np.zeros((3, 50)), "model.embed_tokens.weight": np.zeros((999, 9))}, model / "model.safetensors")
    assert plan.flop_per_pair(flow) == (2 * 150 * plan.tokens(demo.reward.model, 1), str(model))
    (model / "model.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match="is not a readable reward model"):
        plan.flop_per_pair(flow)
