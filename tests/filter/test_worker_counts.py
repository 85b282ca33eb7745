"""How many actors the filter starts on which machine."""

from __future__ import annotations

import os
from typing import Any

import pytest

from stages.engine import cluster
from stages.engine.cluster import Cluster
from stages.engine.config import RayConfig
from stages.filter import worker_counts
from stages.filter.config import FilterConfig

INPUT = {"input": {"dataset": "triplets", "path": "x.jsonl"}, "selections": [{"name": "all", "rule": "all"}]}


class Machine(Cluster):
    """A cluster that says what it has and is never started."""

    cpus: Any = 0
    gpus: Any = 0

    def connect(self) -> None:
        raise AssertionError("nothing is started to count")


def machine(cpus: int, gpus: int, address: str | None = None, num_cpus: int | None = None) -> Machine:
    found = Machine(RayConfig(num_cpus=num_cpus), address)
    found.cpus, found.gpus = cpus, gpus
    return found


def counts(*args: Any, num_cpus: int | None = None, address: str | None = None, **settings: Any) -> tuple[int, int]:
    here, config = machine(*args, address, num_cpus), FilterConfig.model_validate(INPUT | settings)
    return worker_counts.inspecting(config, here), worker_counts.scoring(config, here)


def beside(cpus: int, gpus: int, **settings: Any) -> int:
    return worker_counts.beside_scoring(FilterConfig.model_validate(INPUT | settings), machine(cpus, gpus))


def test_all_of_the_machine_is_used_where_no_number_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_counts, "cores", lambda: 16)
    assert counts(16, 0) == (16, 16)
    assert counts(16, 8) == (16, 8)
    assert counts(16, 8, num_gpus=2) == (16, 4) and counts(16, 1, num_gpus=0.5) == (16, 2) and counts(16, 1, num_gpus=2) == (16, 1)
    assert counts(16, 0, prepare_workers=2) == (16, 8)
    assert counts(16, 8, inspect_workers=3, workers=5) == (3, 5)
    assert counts(128, 64, address="auto") == (128, 64)
    monkeypatch.setattr(worker_counts, "cores", lambda: 2)
    assert counts(4, 0) == (2, 2), "logical CPUs beyond the cores are no cores"
    assert counts(1, 0, num_cpus=1) == (1, 1)


def test_inspection_leaves_cores_to_what_prepares_for_scoring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_counts, "cores", lambda: 16)
    assert beside(16, 8) == 8, "32 tasks could use all cores"
    assert beside(16, 1) == 12 and beside(16, 1, prepare_workers=1) == 14 and beside(16, 8, prepare_workers=0) == 16
    assert beside(16, 0) == 16 and beside(16, 0, prepare_workers=2) == 16
    assert beside(16, 8, inspect_workers=5) == 5
    monkeypatch.setattr(worker_counts, "cores", lambda: 1)
    assert beside(4, 1) == 1


def test_cores_are_those_that_the_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    for mask, quota, expected in ((64, 2, 2), (3, 64, 3), (4, 0, 1)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, mask=mask: set(range(mask)))
        monkeypatch.setattr(cluster, "get_num_cpus", lambda quota=quota, **_: quota)
        assert cluster.cores() == expected
