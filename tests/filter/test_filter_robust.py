"""The filter step when things break: an actor that keeps dying, a row that ends its process, memory that is too small, refusals.

The kills at random moments, nodes included, are in ``benchmarks/filter_kills.py``; a campaign of it runs here, with a model that sleeps.
"""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import ray
import torch
from broken_work import deadly, fatal_row, inspecting, marking, not_loadable
from command import copied, finished, hashes, pipeline, refusal
from filter_here import context, needs_shared, use
from paths import ROOT

import reward.model.model
from reward.inference.passes import PassStats
from reward.model.backbone import encode
from stages.datasets.readers import Slice
from stages.engine import dispatch, fatal_rows
from stages.engine.cluster import Cluster
from stages.engine.contracts import Quarantined
from stages.engine.ids import settings_hash
from stages.engine.run_units import run_units
from stages.engine.rundir import RunDir
from stages.engine.units import Unit
from stages.filter import step as filter
from stages.scoring import preparation
from stages.scoring.meter import Meter, summary
from stages.scoring.preparation import prepared

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def small(cluster: object, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished(tmp_path_factory.getbasetemp())


def test_a_unit_that_keeps_killing_its_worker_is_named_and_costs_no_other(cluster: Cluster, tmp_path: Path) -> None:
    units = [Unit(settings_hash("unit", number), number, 0, f"rows {number}0 to {number}9") for number in range(6)]
    folder = RunDir(tmp_path / "run").step("step")
    make_work = partial(deadly, tmp_path, 2)
    with pytest.raises(ChildProcessError, match=rf"unit {units[2].key} \(rows 20 to 29\) was begun 3 times and its worker process died"):
        run_units(folder, units, make_work, cluster=cluster, workers=1, threads=2)
    begun = {number: len(list(tmp_path.glob(f"{number}-*"))) for number in range(6)}
    assert begun[2] == dispatch.MAX_DEATHS
    assert all(begun[number] <= 2 for number in begun if number != 2)  # at most once beside the culprit, then alone
    records = run_units(folder, [unit for unit in units if unit.payload != 2], make_work, cluster=cluster, workers=1).records
    assert len(records) == 5


def test_a_row_that_ends_its_process_costs_no_other(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "TRIES", 0)
    piece = Slice("x", "", {}, [(number, None) for number in range(6)])
    pieces = [replace(piece, rows=piece.rows[:3]), replace(piece, rows=piece.rows[3:])]
    sound = [entry for part in prepared(pieces, partial(fatal_row, 99), workers=0) for entry in part.entries]
    assert [entry for part in prepared(pieces, partial(fatal_row, 99), workers=2) for entry in part.entries] == sound
    found = [entry for part in prepared(pieces, partial(fatal_row, 4), workers=2) for entry in part.entries]
    assert [entry for entry in found if isinstance(entry, Quarantined) and entry.reason == "seen"] == sound[:4] + sound[5:]
    assert [(entry.position, entry.reason) for entry in found if isinstance(entry, Quarantined) and entry.reason != "seen"] == [
        ("x[4]", "ends-process")
    ]


def test_pieces_are_prepared_while_one_is_used(cluster: Cluster, tmp_path: Path) -> None:
    """As many as there are workers, and no more."""
    pieces = [Slice("x", "", {}, [(number, None)]) for number in range(6)]
    used = prepared(pieces, partial(marking, tmp_path), workers=2)
    for number in range(6):
        next(used)
        wanted = {str(begun) for begun in range(min(number + 3, 6))}
        until = time.monotonic() + 120
        while (begun := {path.name for path in tmp_path.iterdir()}) != wanted and time.monotonic() < until:
            time.sleep(0.05)
        assert begun == wanted
    assert next(used, None) is None


def test_a_row_that_ends_its_worker_costs_no_other(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its unit is done without it, and whatever else was in work is done; another run does nothing."""
    monkeypatch.setattr(dispatch, "MAX_DEATHS", 2)
    monkeypatch.setattr(fatal_rows, "TRIES", 2)
    units = [Unit(settings_hash("unit", first), Slice("x", "", {}, [(first + row, None) for row in range(3)]), 3) for first in (0, 3)]
    folder = RunDir(tmp_path / "run").step("step")
    done = run_units(folder, units, partial(inspecting, 4), cluster=cluster, workers=1)
    assert done.counts() == {"in": 6, "out": 5, "quarantined": 1} and done.quarantined() == {"ends-process": 1}
    assert folder.read_table("selection", done.artifacts()["selection"])["sample_id"].to_pylist() == ["0", "1", "2", "3", "5"]
    assert folder.read_table("quarantine", done.artifacts()["quarantine"])["row_id"].to_pylist() == ["4"]
    assert run_units(folder, units, partial(inspecting, 4), cluster=cluster, workers=1).records == done.records


def test_rows_are_not_to_blame_for_a_worker_that_cannot_load(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "MAX_DEATHS", 1)
    monkeypatch.setattr(fatal_rows, "TRIES", 1)
    units = [Unit("unit", Slice("x", "", {}, [(0, None), (1, None)]), 2)]
    folder = RunDir(tmp_path / "run").step("step")
    with pytest.raises(ChildProcessError, match="died 1 times before they saw a row, perhaps out of memory"):
        run_units(folder, units, not_loadable, cluster=cluster, workers=1)


def test_bytes_do_not_depend_on_preparing_tasks(small: Path, tmp_path: Path) -> None:
    """And what the actors report reaches the machine's metrics endpoint; meters of this process replace those of actors."""
    meter = Meter("test-of-metrics", None)
    figures: dict[str, float] = {}
    meter.count(PassStats(edits=7, tokens=700, flop=1e9, seconds=0.0), figures)
    assert figures["edits"] == 7 and summary([figures, figures]) == ""
    measured = {"flop": 3e9, "possible_flop": 4e9, "out_of_memory": 1.0}
    assert summary([measured, measured]) == "MFU 75%, 2 passes out of memory, halved"
    pipeline("run", "filter", "--config", small / "small.yaml", "--run", tmp_path / "run", "filter.workers=1", "filter.prepare_workers=1")
    assert hashes(tmp_path / "run") == hashes(small / "run")
    (node,) = ray.nodes()
    give_up = time.monotonic() + 60
    wanted = ("ray_scoring_edits_total{", 'step="test-of-metrics"')
    while time.monotonic() < give_up:
        text = urlopen(f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics").read().decode()
        lines = [line for line in text.splitlines() if all(part in line for part in wanted)]
        if lines:
            break
        time.sleep(0.5)
    assert lines and float(lines[0].split()[-1]) == 7


@needs_shared
def test_edits_that_do_not_fit_into_memory_are_set_aside_and_cost_no_other(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of more tokens than a limit raise what CUDA raises; with a limit of one less, the longest edits do not fit alone."""
    rows: list[int] = []
    limit = 10_000

    def limited(backbone: Any, batch: Any, **how: Any) -> Any:
        rows.append(len(batch.input_ids))
        if len(batch.input_ids) > limit:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return encode(backbone, batch, **how)

    use(monkeypatch, [])
    monkeypatch.setattr(reward.model.model, "encode", limited)
    undisturbed = context(tmp_path / "undisturbed", small / "model", token_budget=1)
    expected = filter.run(undisturbed)
    limit = max(rows) - 1
    made = context(tmp_path / "run", small / "model", token_budget=400)
    index = filter.run(made)
    too_large = index.quarantined.pop("out-of-memory")
    assert 0 < too_large < index.counts["out"] and index.quarantined == expected.quarantined
    assert (index.counts["in"], index.counts["out"] + too_large) == (expected.counts["in"], expected.counts["out"])
    before = {row["sample_id"]: row["overall_mean"] for row in undisturbed.run.step("filter").read("scores").to_pylist()}
    after = made.run.step("filter").read("scores").to_pylist()
    assert all(abs(row["overall_mean"] - before[row["sample_id"]]) <= 2e-5 for row in after)


def test_settings_that_do_not_fit(small: Path, tmp_path: Path) -> None:
    config, run = small / "small.yaml", copied(small, tmp_path / "run")
    before = hashes(run)
    for change, sentence in [
        ("filter.token_budget=9", "other settings (filter.token_budget: 16384 then, 9 now)"),
        ("filter.selections.0.count=3", "other settings (filter.selections.0.count: 6 then, 3 now)"),
        ("seed=4", "other settings (seed: 0 then, 4 now)"),
    ]:
        assert sentence in refusal("run", "filter", "--run", run, change)
    assert hashes(run) == before
    file = tmp_path / "file"
    file.write_text("")
    command = ("run", "filter", "--config", config, "--run", tmp_path / "other")
    assert str(file) in refusal(*command, f"filter.shards.target={file}/shards")
    assert "raise ray.num_cpus, lower filter.workers, or set filter.prepare_workers to 0" in refusal(
        *command, "filter.workers=4", "filter.prepare_workers=1", "filter.unit_rows=2"
    )


@pytest.mark.timeout(1200)
def test_kills_of_every_kind_leave_no_trace(tmp_path: Path) -> None:
    """The driver, a worker, a task that prepares and a node, on three nodes of this machine; the model sleeps."""
    command = [
        sys.executable,
        "benchmarks/filter_kills.py",
        "--kills",
        "4",
        "--edits",
        "120",
        "--sleeping",
        "--runs",
        str(tmp_path / "runs"),
    ]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    logs = "\n".join(path.read_text()[-3000:] for path in (tmp_path / "runs").glob("*.log")) if found.returncode else ""
    assert found.returncode == 0, found.stdout + found.stderr + logs
    assert "4 kills that hit a live process, 0 runs with differences" in found.stdout
    assert all(found.stdout.count(f"{kind} after ") == 1 for kind in ("driver", "actor", "preparation", "node"))
