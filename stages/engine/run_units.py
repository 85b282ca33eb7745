"""Runs units on Ray actors: each is published when finished, and skipped when up to date."""

from __future__ import annotations

import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import ray

from stages.engine import contracts, unit_log, warm_workers
from stages.engine.cluster import Cluster
from stages.engine.dispatch import IN_FLIGHT, Crew, Dispatch
from stages.engine.phase_bars import PhaseBars, Show
from stages.engine.rundir import StepFolder
from stages.engine.units import Done, Unit, UnitRecord, Work, publish_unit

Follow = Callable[[UnitRecord], Iterable[Unit]]

_numbers = count(1)
"""Of the actors that this process has started."""


@dataclass(frozen=True)
class Job:
    """Units with one work function.

    ``make_work`` is called once in each worker process (load a model there) and returns the function from payload to output; with
    ``threads`` 2, a process runs two units at a time. ``workers``: processes at a time. ``seconds``: expected of a row, to compare jobs. A
    work function with a method ``close`` is closed in the end. ``tasks``: whether the work starts Ray tasks, which need the CPUs that idle
    workers would hold.

    ``phase`` says which of a step's parts this is, for the progress bar and the dashboard; ``show`` formats the figures of the units that
    the current call finished, for the bar. ``follows`` gives the units that a finished unit of another job brings for this one.
    """

    units: Sequence[Unit]
    make_work: Callable[[], Work]
    workers: int
    name: str = ""
    num_cpus: float = 1.0
    num_gpus: float = 0.0
    threads: int = 1
    seconds: float = 1.0
    tasks: bool = False
    phase: str = ""
    show: Show = lambda _: ""
    follows: Follow | None = None


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
    show: Show = lambda _: "",
) -> Done:
    """Run the units that are missing and return the records of all; arguments as of :class:`Job` and :func:`run_jobs`.

    An exception in the work ends the command; logged units stay done. A dead worker is replaced (:mod:`stages.engine.dispatch`).
    """
    job = Job(units, make_work, workers, num_cpus=num_cpus, num_gpus=num_gpus, threads=threads, phase=phase, show=show)
    return run_jobs(folder, [job], cluster=cluster, workers=workers, rows_are=rows_are)


def run_jobs(
    folder: StepFolder,
    jobs: Sequence[Job],
    *,
    cluster: Cluster,
    workers: int,
    rows_are: str = "rows",
    finished: Callable[[UnitRecord], None] = lambda _: None,
    failed: Callable[[str, Exception], None] | None = None,
) -> Done:
    """Run the missing units of jobs, several jobs at a time, and return the records of all units that are done, in the order of the jobs.

    ``workers``: processes at a time, of all jobs. ``finished`` gets the record of a unit once it is logged. ``failed`` gets the name of a
    job that cannot go on, and why; the others go on, and its units are left out of the result. Units that follow others are not in the
    result either: they must be missing, and ``finished`` gets their records.
    """
    units = [unit for job in jobs for unit in job.units]
    assert len({unit.key for unit in units}) == len(units), "two units have the same key"
    assert all(job.threads <= IN_FLIGHT for job in jobs)
    logged = unit_log.sound(folder)
    done = {unit.key: logged[unit.key] for unit in units if unit.key in logged and unit_log.is_whole(folder, logged[unit.key])}
    missing = [[unit for unit in job.units if unit.key not in done] for job in jobs]
    leading = {unit.key for job in jobs if job.follows is None for unit in job.units}

    def following(record: UnitRecord) -> Iterator[tuple[int, Unit]]:
        """Units that a finished unit brings, each with the number of its job."""
        for number, job in enumerate(jobs):
            if job.follows is not None and record.key in leading:
                yield from ((number, unit) for unit in job.follows(record))

    for record in [*done.values()]:
        for number, unit in following(record):
            missing[number].append(unit)
    if any(missing):
        cluster.connect()
        folder.path.mkdir(parents=True, exist_ok=True)
        tasks = any(job.tasks for job in jobs)
        alike = warm_workers.options(max((job.num_cpus for job in jobs if not job.num_gpus), default=1.0))
        warm_workers.release(beside=None if tasks or all(job.num_gpus for job in jobs) else alike, most=workers)
        crews = [_crew(folder, job, of_job, keep=not tasks) for job, of_job in zip(jobs, missing, strict=True)]
        on_failure = None if failed is None else lambda crew, failure: failed(crew.name, failure)
        dispatch = Dispatch(crews, workers, cluster.gpus if len(jobs) > 1 else math.inf, on_failure)
        with closing(PhaseBars(folder.name, rows_are)) as bars, open(folder.path / unit_log.NAME, "a") as file:
            for job, of_job in zip(jobs, missing, strict=True):
                bars.phase(job.phase, job.show, follows=job.follows is not None)
                for unit in job.units:
                    if unit.key in done:
                        bars.add(job.phase, unit, done=True)
                for unit in of_job:
                    bars.add(job.phase, unit, done=False)
            bars.draw()
            for record in dispatch.records():
                done[record.key] = record
                file.write(unit_log.line(record))
                file.flush()
                os.fsync(file.fileno())
                finished(record)
                bars.finish(record)
                for number, unit in following(record):
                    bars.add(jobs[number].phase, unit, done=False)
                    crews[number].queue.append(unit)
                bars.draw()
    return Done([done[unit.key] for unit in units if unit.key in done])


def _crew(folder: StepFolder, job: Job, units: Sequence[Unit], *, keep: bool) -> Crew:
    """The actors of a job, for its missing units. Those without a GPU are taken from other steps, and left to them if told to ``keep``."""
    label = f"{folder.name}: {job.phase}" if job.phase else folder.name
    resources = {"num_cpus": job.num_cpus, "num_gpus": job.num_gpus}
    worker: Any = ray.remote(max_restarts=0, max_task_retries=0, max_concurrency=IN_FLIGHT, **resources)(_Worker)
    alike = warm_workers.options(job.num_cpus)

    def start() -> tuple[Any, Any]:
        named = worker.options(name=_actor_name(f"{label}{job.name and f' by {job.name}'}" if job.num_gpus else "worker"))
        actor = (None if job.num_gpus else warm_workers.take(alike)) or named.remote()
        return actor, actor.begin.remote(job.make_work, str(folder.path), job.threads)

    retire = warm_workers.end if job.num_gpus or not keep else partial(warm_workers.keep, alike)
    grows = job.follows is not None
    return Crew(start, units, job.workers, retire, name=job.name, num_gpus=job.num_gpus, seconds=job.seconds, grows=grows)


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
        close = getattr(self.work, "close", None)
        if close is not None:
            close()
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
            output.seen,
        )
