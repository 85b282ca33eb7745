"""The filter step with gates on real photographs: another threshold, another order of work. In this process; on Ray in test_real_input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import filter_here
import pyarrow as pa
import pytest
from command import save_model

from pipeline.report.page import build
from stages.config import FlowConfig
from stages.context import Context
from stages.engine.rundir import RunDir
from stages.filter import step as filter
from stages.filter.gates.config import GATES
from stages.filter.inspection import inspected_rows
from stages.filter.schemas import INSPECTED


def records(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "filter" / "units.jsonl").read_text().splitlines()]


def assert_same(a: RunDir, b: RunDir) -> None:
    """The same inspection and gates; the same scores up to what the make-up of a batch does to the last digit that is stored."""
    a_step, b_step = a.step("filter"), b.step("filter")
    assert a_step.read("inspected", schema=INSPECTED) == b_step.read("inspected", schema=INSPECTED)
    assert a_step.read("gated") == b_step.read("gated")
    a_scores, b_scores = a_step.read("scores"), b_step.read("scores")
    assert a_scores["sample_id"] == b_scores["sample_id"] and a_scores["flags"] == b_scores["flags"]
    assert a_scores["overall_mean"].to_pylist() == pytest.approx(b_scores["overall_mean"].to_pylist(), abs=3e-5)


def test_another_threshold_inspects_nothing_and_scores_only_what_changed(
    shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = save_model(tmp_path / "model")
    no_cluster: Any = filter_here.NoCluster()

    def context(run: str, *, force: bool = False, backwards: bool = False, num_gpus: float = 0, **gates: Any) -> Context:
        filter_here.use(monkeypatch, [], backwards=backwards)
        settings = {
            "input": {"dataset": "sharegpt4o", "path": str(shared_data / "sharegpt4o-mini")},
            "model": str(model),
            "selections": [{"name": "selected", "rule": "top", "count": 20}],
            "gates": gates,
            "unit_rows": 16,
            "prepare_workers": 0,
            "num_gpus": num_gpus,
        }
        return Context(RunDir(tmp_path / run), FlowConfig.model_validate({"name": "mini", "filter": settings}), no_cluster, force)

    index = filter.run(context("run"))
    assert index.counts == {"in": 63, "out": 59, "quarantined": 4, "gated": 0}
    step = RunDir(tmp_path / "run").step("filter")
    table = step.read("inspected", schema=INSPECTED)
    assert table.num_rows == 59 and step.read("scores")["sample_id"].to_pylist() == table["sample_id"].to_pylist()
    flagged = step.read("gated").to_pylist()
    assert sum(row["gate"] == "language" and row["action"] == "flag" for row in flagged) == 5
    before = records(tmp_path / "run")
    assert sum("inspected" in record["parts"] for record in before) == sum("scores" in record["parts"] for record in before) == 4

    flags = {row["sample_id"]: row["flags"] for row in step.read("scores").to_pylist()}
    assert flags == {
        sample_id: [gate for gate in GATES if any(row["sample_id"] == sample_id and row["gate"] == gate for row in flagged)]
        for sample_id in table["sample_id"].to_pylist()
    }
    assert index.results["flags"]["language"] == 5 and "contamination" not in index.results["flags"]
    first = context("run").run.artifact_hashes()
    index = filter.run(context("run", force=True, language={"action": "drop"}))
    assert index.counts == {"in": 63, "out": 54, "quarantined": 4, "gated": 5}
    assert index.results["gates"]["language"]["dropped"] == 5
    added = records(tmp_path / "run")[len(before) :]
    assert not any("inspected" in record["parts"] for record in added)
    assert not any("scores" in record["parts"] for record in added), "every row that is left was scored before"
    gone = {row["sample_id"] for row in step.read("gated").to_pylist() if row["action"] == "drop"}
    assert len(gone) == 5 and not gone & set(step.read("scores")["sample_id"].to_pylist())

    other = context("other", backwards=True, language={"action": "drop"})
    filter.run(other)
    assert_same(other.run, RunDir(tmp_path / "run"))
    index = filter.run(context("run", force=True))  # all rows again: none is scored
    assert index.counts["out"] == 59 and not any("scores" in record["parts"] for record in records(tmp_path / "run")[len(before) :])
    assert RunDir(tmp_path / "run").artifact_hashes() == first
    done = len(records(tmp_path / "other"))
    index = filter.run(context("other", force=True))
    again = [record for record in records(tmp_path / "other")[done:] if "scores" in record["parts"]]
    assert index.counts["out"] == 59 and sum(record["rows_out"] for record in again) == 5, "only the rows that no unit has"
    assert_same(other.run, RunDir(tmp_path / "run"))
    filter.run(context("other", force=True, language={"action": "drop"}))
    page = build(other.run).read_text()
    assert "Gates before scoring" in page and "In 63 = scored 54 + quarantined 4 + gated 5" in page

    with pytest.raises(ValueError, match=r"none of the 63 edits could be scored \(.*missing-image 1.*size 59; the first, .*\[\d+\]: .+\)"):
        filter.run(context("none", size={"action": "drop", "shortest_side": 5000}))
    with pytest.raises(ValueError, match=r"filter\.num_gpus asks for .* there is room for 0"):
        filter.run(context("no-gpus", num_gpus=1, near_duplicate={"action": "drop"}))
    assert not (tmp_path / "no-gpus" / "filter" / "units").exists(), "refused before anything is inspected"


def test_an_image_that_changed_between_inspection_and_scoring_is_named() -> None:
    known = pa.table({"position": ["a[2]", "a[3]", "a[4]"], "sample_id": ["none", "one", "two"]})
    inspected_rows(known, pa.table({"position": ["a[3]", "a[4]"], "sample_id": ["one", "two"]}))
    with pytest.raises(ValueError, match=r"a\[4\] changed since it was inspected as sample two"):
        inspected_rows(known, pa.table({"position": ["a[3]", "a[4]"], "sample_id": ["one", "three"]}))
