"""Units on a real Ray cluster: resume, balance, worker death, damage, identical bytes for any number of workers."""

from __future__ import annotations

import json
import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
from ray.exceptions import OutOfMemoryError, RayActorError

from stages.engine import contracts, warm_workers
from stages.engine.cluster import Cluster
from stages.engine.contracts import Quarantined
from stages.engine.dispatch import Crew, _Actor
from stages.engine.ids import settings_hash
from stages.engine.run_units import Job, run_jobs, run_units
from stages.engine.rundir import RunDir
from stages.engine.units import Done, Unit, UnitOutput, UnitRecord, Work

UNITS = [Unit(settings_hash("unit", number), number, 10) for number in range(12)]


def make_work(traces: Path, fault: str = "none") -> Work:
    """Ten rows per unit, the fourth quarantined; leaves a trace of each execution; may die, or raise, on unit 7."""

    def work(number: int) -> UnitOutput:
        trace = traces / f"{number}-{len(list(traces.glob(f'{number}-*')))}"
        trace.touch()
        if number == 7 and fault == "die once" and trace.name == "7-0":
            os._exit(9)
        if number == 7 and fault == "raise":
            raise ValueError("row 73 of table x: score 9 is out of scale")
        rows = [
            {"sample_id": f"{number}-{row}", "rank": row, "stratum": "", "score": number + row / 10, "rule": "top"}
            for row in range(10)
            if row != 3
        ]
        bad = [Quarantined(f"{number}-3", f"table[{number}]", "bad", "does not decode")]
        return UnitOutput({"selection": contracts.table("selection", rows)}, rows_in=10, rows_out=9, quarantine=bad)

    return work


def run(cluster: Cluster, path: Path, traces: Path, *, workers: int = 2, fault: str = "none") -> Done:
    traces.mkdir(exist_ok=True)
    folder = RunDir(path).step("step")
    draft, _ = folder.begin(settings={"a": 1}, inputs={}, force=False)
    done = run_units(folder, UNITS, partial(make_work, traces, fault), cluster=cluster, workers=workers)
    folder.publish(draft, **done.tables())
    return done


def test_counts_balance_and_bytes_do_not_depend_on_workers(cluster: Cluster, tmp_path: Path) -> None:
    one = run(cluster, tmp_path / "one", tmp_path / "t1", workers=1)
    three = run(cluster, tmp_path / "three", tmp_path / "t3", workers=3)
    assert one.counts() == {"in": 120, "out": 108, "quarantined": 12}
    assert one.quarantined() == {"bad": 12}
    assert RunDir(tmp_path / "one").artifact_hashes() == RunDir(tmp_path / "three").artifact_hashes()
    table = RunDir(tmp_path / "one").step("step").read("selection")
    assert table.column("sample_id").to_pylist()[:10] == [f"0-{row}" for row in range(10) if row != 3] + ["1-0"]
    assert three.records[0].parts["quarantine"].rows == 1


def test_a_dead_worker_costs_only_its_unit(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that Ray ends since the machine is short of memory, which it reports with another error."""
    get, ended = ray.get, []

    def short_of_memory(reference: Any) -> Any:
        try:
            return get(reference)
        except RayActorError as error:
            ended.append(error)
            raise OutOfMemoryError("the node is low on memory") from error

    monkeypatch.setattr(ray, "get", short_of_memory)
    run(cluster, tmp_path / "run", tmp_path / "traces", fault="die once")
    run(cluster, tmp_path / "undisturbed", tmp_path / "t2")
    assert RunDir(tmp_path / "run").artifact_hashes() == RunDir(tmp_path / "undisturbed").artifact_hashes()
    assert (tmp_path / "traces" / "7-1").exists() and ended


def test_a_fault_keeps_what_is_done_and_a_rerun_does_the_rest(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="score 9 is out of scale"):
        run(cluster, tmp_path / "run", tmp_path / "traces", fault="raise")
    log = tmp_path / "run" / "step" / "units.jsonl"
    before = [json.loads(line)["key"] for line in log.read_text().splitlines()]
    assert before and UNITS[7].key not in before
    with log.open("a") as file:
        file.write('{"key": "torn')  # the driver was killed while writing
    run(cluster, tmp_path / "run", tmp_path / "traces")
    run(cluster, tmp_path / "undisturbed", tmp_path / "t2")
    assert RunDir(tmp_path / "run").artifact_hashes() == RunDir(tmp_path / "undisturbed").artifact_hashes()
    redone = {int(trace.name.split("-")[0]) for trace in (tmp_path / "traces").iterdir() if trace.name.endswith("-1")}
    assert not {number for number, unit in enumerate(UNITS) if unit.key in before} & redone


def test_a_damaged_unit_is_done_again(cluster: Cluster, tmp_path: Path) -> None:
    done = run(cluster, tmp_path / "run", tmp_path / "traces")
    hashes = RunDir(tmp_path / "run").artifact_hashes()
    victim = tmp_path / "run" / "step" / done.records[4].parts["selection"].path
    victim.write_bytes(victim.read_bytes()[:-20])
    folder = RunDir(tmp_path / "run").step("step")
    assert folder.damage(folder.require()) == done.records[4].parts["selection"].path
    assert folder.begin(settings={"a": 1}, inputs={}, force=False)[1] is None
    run(cluster, tmp_path / "run", tmp_path / "traces")
    assert RunDir(tmp_path / "run").artifact_hashes() == hashes
    assert [trace.name for trace in sorted((tmp_path / "traces").iterdir()) if trace.name.endswith("-1")] == ["4-1"]


def waiting(told: Path, number: int) -> UnitOutput:
    """The last unit ends only when a unit that follows another has ended."""
    give_up = time.monotonic() + 120
    while number == UNITS[-1].payload and not told.exists():
        assert time.monotonic() < give_up, "what follows a unit waits for the others"
        time.sleep(0.01)
    return naming("leads", number)


def telling(told: Path, number: int) -> UnitOutput:
    told.touch()
    return naming("follows", number)


@pytest.mark.parametrize("places", [2, 1])
def test_a_finished_unit_brings_another_one(cluster: Cluster, tmp_path: Path, places: int) -> None:
    """What it brings is done beside the others where there is a place, after them where there is none, and never twice."""
    folder, told = RunDir(tmp_path).step("step"), tmp_path / "told"
    folder.begin(settings={}, inputs={}, force=False)
    if places == 1:
        told.touch()
    got: list[int] = []

    def follows(record: UnitRecord) -> list[Unit]:
        number = next(unit.payload for unit in UNITS if unit.key == record.key)
        return [] if number % 2 or number in got else [Unit(settings_hash("follows", number), number, 1, family=str(number))]

    def finished(record: UnitRecord) -> None:
        got.extend([int(record.family)] if record.family else [])

    leading = Job(UNITS, lambda: partial(waiting, told), 1, phase="leads")
    following = Job([], lambda: partial(telling, told), 1, phase="follows", follows=follows)
    for _ in range(2):
        done = run_jobs(folder, [leading, following], cluster=cluster, workers=places, finished=finished)
        assert [record.key for record in done.records] == [unit.key for unit in UNITS]
        assert sorted(got) == [unit.payload for unit in UNITS if unit.payload % 2 == 0]


def test_rows_that_do_not_balance_are_a_fault(cluster: Cluster, tmp_path: Path) -> None:
    def lossy() -> Work:
        def work(number: int) -> UnitOutput:
            return UnitOutput({}, rows_in=10, rows_out=9)

        return work

    with pytest.raises(AssertionError, match="do not balance"):
        run_units(RunDir(tmp_path).step("step"), [UNITS[0]], lossy, cluster=cluster, workers=1)


def naming(name: str, number: int) -> UnitOutput:
    """One row, with the name of the step and the process that did it."""
    row = {"sample_id": str(number), "rank": number, "stratum": str(os.getpid()), "score": 0.0, "rule": name}
    return UnitOutput({"selection": contracts.table("selection", [row])}, rows_in=1, rows_out=1)


def test_the_next_step_takes_over_the_workers(cluster: Cluster, tmp_path: Path) -> None:
    """They do its work, not that of the step before; one that died in between is replaced; a step with other actors ends the idle ones."""

    def step(name: str, **how: Any) -> int:
        folder = RunDir(tmp_path / name).step("step")
        folder.begin(settings={}, inputs={}, force=False)
        done = run_units(folder, UNITS, lambda: partial(naming, name), cluster=cluster, workers=1, **how)
        table = folder.read_table("selection", done.artifacts()["selection"])
        assert table.num_rows == len(UNITS) and set(table["rule"].to_pylist()) == {name}
        (process,) = set(table["stratum"].to_pylist())
        return int(process)

    first = step("first")
    assert step("second") == first
    os.kill(first, signal.SIGKILL)
    third = step("third")
    assert third != first
    warm_workers.release(unless_free=1)
    assert step("with room for others") == third
    assert step("fourth", num_cpus=0.5) != third
    assert ended(third)
    fifth = step("fifth")
    warm_workers.release(unless_free=cluster.cpus)
    assert ended(fifth)


def ended(process: int) -> bool:
    psutil.wait_procs([psutil.Process(process)] if psutil.pid_exists(process) else [], timeout=60)
    return not psutil.pid_exists(process)


def crowded(inside: list[int], most: list[int], number: int) -> UnitOutput:
    """The most units that were ever inside at a time; each stays for a moment."""
    inside.append(number)
    most[0] = max(most[0], len(inside))
    time.sleep(0.3)
    inside.remove(number)
    return naming(str(most[0]), number)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_worker_runs_as_many_units_at_a_time_as_it_is_told(cluster: Cluster, tmp_path: Path, threads: int) -> None:
    folder = RunDir(tmp_path).step("step")
    folder.begin(settings={}, inputs={}, force=False)
    done = run_units(folder, UNITS, lambda: partial(crowded, [], [0]), cluster=cluster, workers=1, threads=threads)
    table = folder.read_table("selection", done.artifacts()["selection"])
    assert max(map(int, table["rule"].to_pylist())) == threads


class _Handle:
    """An actor that takes units and never ends one."""

    def __init__(self) -> None:
        self.run = self

    def remote(self, unit: Unit) -> object:
        return object()


@pytest.mark.parametrize(("units", "given"), [(1, [1, 0]), (2, [1, 1]), (3, [1, 1]), (4, [2, 1]), (5, [2, 2])])
def test_towards_the_end_no_unit_waits_behind_another(units: int, given: list[int]) -> None:
    crew = Crew(lambda: (None, None), [Unit(str(number), number, 1) for number in range(units)], most=2)
    crew.actors = [_Actor(_Handle(), crew, "node") for _ in given]
    crew.submit()
    assert [len(actor.units) for actor in crew.actors] == given
