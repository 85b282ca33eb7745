"""Steps whose units are done in this process, in any order, and the filter step on photographs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from paths import SHARED

from stages.config import FlowConfig
from stages.contamination import compare
from stages.context import Context
from stages.engine import run_units, unit_log
from stages.engine.cluster import Cluster
from stages.engine.config import RayConfig
from stages.engine.run_units import Job, _Worker
from stages.engine.rundir import RunDir, StepFolder
from stages.engine.units import Done, Unit, UnitRecord, Work
from stages.filter import scoring as edit_scoring
from stages.filter import shard_sets
from stages.filter import step as filter
from stages.generate import elsewhere
from stages.preferences import decontamination as training_split

MINI = SHARED / "sharegpt4o-mini"


needs_shared = pytest.mark.skipif(not MINI.exists(), reason=f"real data set {MINI} is not here")


class NoCluster:
    """Replaces the cluster in a context; nothing may be run on it."""

    address = None
    config = RayConfig()
    gpus = 0

    def share_of_a_gpu(self, actors: int) -> float:
        return 0.0

    need = Cluster.need
    cpus = 1

    def room(self, *, num_cpus: float, num_gpus: float) -> int:
        return 0


def in_process(
    folder: StepFolder,
    todo: Sequence[Unit],
    make_work: Callable[[], Work],
    *,
    log: list[str],
    backwards: bool,
    stop_after: int | None = None,
    **_: Any,
) -> Done:
    """What ``run_units`` does, without Ray: done units are skipped, the others done in either order, each by a fresh worker or by one."""
    logged = unit_log.sound(folder)
    done = {unit.key: logged[unit.key] for unit in todo if unit.key in logged and unit_log.is_whole(folder, logged[unit.key])}
    missing = [unit for unit in todo if unit.key not in done]
    worker = _Worker()
    worker.begin(make_work, str(folder.path), threads=1)
    for number, unit in enumerate(reversed(missing) if backwards else missing):
        if number == stop_after:
            raise KeyboardInterrupt
        record: UnitRecord = worker.run(unit)
        log.append(unit.key)
        done[unit.key] = record
        with open(folder.path / "units.jsonl", "a") as file:
            file.write(unit_log.line(record))
    return Done([done[unit.key] for unit in todo])


def jobs_in_process(
    folder: StepFolder, jobs: Sequence[Job], *, finished: Callable[[UnitRecord], None] = lambda _: None, **how: Any
) -> Done:
    """What ``run_jobs`` does: the units of all jobs, and then those that follow them."""
    leading = in_process(folder, [unit for job in jobs for unit in job.units], _only(jobs), **how)
    for record in leading.records:
        finished(record)
    for job in jobs:
        if job.follows is not None:
            brought = [unit for record in leading.records for unit in job.follows(record)]
            for record in in_process(folder, brought, job.make_work, **how).records:
                finished(record)
    return leading


def _only(jobs: Sequence[Job]) -> Callable[[], Work]:
    (job,) = (job for job in jobs if job.follows is None)
    return job.make_work


def use(monkeypatch: pytest.MonkeyPatch, log: list[str], **how: Any) -> None:
    replacement = partial(in_process, **({"log": log, "backwards": False} | how))
    monkeypatch.setattr(run_units, "node_id", lambda: "here")
    for module in (shard_sets, elsewhere, compare, training_split):
        monkeypatch.setattr(module, "run_units", replacement)
    for module in (filter, edit_scoring):
        monkeypatch.setattr(module, "run_jobs", partial(jobs_in_process, **replacement.keywords))


def context(folder: Path, model: Path | None, *, force: bool = False, **changes: Any) -> Context:
    settings: dict[str, Any] = {
        "input": {"dataset": "sharegpt4o", "path": str(MINI)},
        "model": model and str(model),
        "selections": [{"name": "selected", "rule": "top", "count": 20}, {"name": "random", "rule": "random", "fraction": 0.43}],
        "shards": {"samples_per_shard": 8},
        "unit_rows": 16,
        "token_budget": 64,
    }
    flow = FlowConfig.model_validate({"name": "test", "filter": settings | changes, "world": {"size": 32}})
    return Context(RunDir(folder), flow, NoCluster(), force)
