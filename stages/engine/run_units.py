"""Runs units on Ray actors: each is published when finished, and skipped when up to date."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import ray

from stages.engine import contracts, unit_log, warm_workers
from stages.engine.cluster import Cluster
from stages.engine.dispatch import IN_FLIGHT, Dispatch
from stages.engine.progress import progress
from stages.engine.rundir import StepFolder
from stages.engine.units import Done, Unit, UnitRecord, Work, publish_unit

_numbers = count(1)
"""Of the actors that this process has started."""


def run_units(
    folder: StepFolder,
    units: Sequence[Unit],
    make_work: Callable[[], Work],
    *,
    cluster: Cluster,
    workers: int,
    num_cpus: float = 1.0,
    num_gpus: float = 0.0,
    threads: int = 1,
    phase: str = "",
    rows_are: str = "rows",
    show: Callable[[Sequence[Mapping[str, float]]], str] = lambda _: "",
) -> Done:
    """Run the units that are missing and return the records of all.

    ``make_work`` is called once in each worker process (load a model there) and returns the function from payload to output; with
    ``threads`` 2, a process runs two units at a time. An exception in it ends the command; logged units stay done. A dead worker is
    replaced (:mod:`stages.engine.dispatch`). ``phase`` says which of a step's parts this is, for the progress bar and the dashboard.
    ``show`` formats the figures of the units that this call finished, for the progress bar.
    """
    assert len({unit.key for unit in units}) == len(units), "two units have the same key"
    assert threads <= IN_FLIGHT
    logged = unit_log.sound(folder)
    done = {unit.key: logged[unit.key] for unit in units if unit.key in logged and unit_log.is_whole(folder, logged[unit.key])}
    missing = [unit for unit in units if unit.key not in done]
    if missing:
        cluster.connect()
        folder.path.mkdir(parents=True, exist_ok=True)
        resources = {"num_cpus": num_cpus, "num_gpus": num_gpus}
        worker: Any = ray.remote(max_restarts=0, max_task_retries=0, max_concurrency=IN_FLIGHT, **resources)(_Worker)
        label = f"{folder.name}: {phase}" if phase else folder.name
        total = sum(unit.rows for unit in units)
        before = total - sum(unit.rows for unit in missing)
        alike = warm_workers.options(num_cpus)
        warm_workers.release(beside=None if num_gpus else alike, most=workers)

        def start() -> tuple[Any, Any]:
            named = worker.options(name=_actor_name(label if num_gpus else "worker"))
            actor = (None if num_gpus else warm_workers.take(alike)) or named.remote()
            return actor, actor.begin.remote(make_work, str(folder.path), threads)

        dispatch = Dispatch(start, missing, workers, ray.kill if num_gpus else partial(warm_workers.keep, alike))
        figures = []
        finished = before
        with closing(progress(label, total, unit=rows_are, initial=before)) as bar, open(folder.path / unit_log.NAME, "a") as file:
            for record in dispatch.records():
                done[record.key] = record
                file.write(unit_log.line(record))
                file.flush()
                os.fsync(file.fileno())
                figures.append(record.figures)
                finished += record.rows_in
                bar.show(finished, show(figures))
    return Done([done[unit.key] for unit in units])


def _actor_name(what: str) -> str:
    """The name that the dashboard shows. An actor without a GPU serves several steps, so no step is part of its name."""
    return f"{what} {next(_numbers)}, job {ray.get_runtime_context().get_job_id()}"  # jobs on one cluster share the namespace of names


def node_id() -> str:
    """Id of the node that this process is on."""
    return ray.get_runtime_context().get_node_id()


class _Worker:
    """The actor, for one step after the other: makes its work function with the first unit, then turns units into published folders."""

    def __init__(self) -> None:
        self.making = threading.Lock()

    def begin(self, make_work: Callable[[], Work], folder: str, threads: int) -> str:
        """Take up a step; returns the id of the node that the worker is on."""
        self.make_work, self.folder = make_work, Path(folder)
        self.turns = threading.Semaphore(threads)
        self.work: Work | None = None
        return node_id()

    def end(self) -> None:
        """Let go of the work function, so of its model."""
        del self.make_work, self.work

    def run(self, unit: Unit) -> UnitRecord:
        with self.turns:
            return self._run(unit)

    def load(self) -> None:
        """Make the work, which loads what it needs, and do nothing."""
        self._made()

    def try_rows(self, payload: Any) -> None:
        """Do the work of some rows of a unit for nothing (stages/engine/fatal_rows.py)."""
        self._made()(payload)

    def _made(self) -> Work:
        with self.making:  # not in the constructor: Ray hides the exception of a failed constructor
            self.work = self.work or self.make_work()
            return self.work

    def _run(self, unit: Unit) -> UnitRecord:
        work = self._made()
        started = time.monotonic()
        output = work(unit.payload)
        assert output.rows_in == output.rows_out + len(output.quarantine), f"rows of unit {unit.key} do not balance"
        tables = dict(output.tables) | {"quarantine": contracts.table("quarantine", [asdict(row) for row in output.quarantine])}
        parts = publish_unit(self.folder, unit.key, tables)
        reasons = Counter(row.reason for row in output.quarantine)
        return UnitRecord(
            unit.key,
            parts,
            output.rows_in,
            output.rows_out,
            dict(sorted(reasons.items())),
            round(time.monotonic() - started, 3),
            {name: round(value, 6) for name, value in output.figures.items()},
            unit.family,
        )
