"""How many actors the filter starts on which machine."""

from __future__ import annotations

import os
from typing import Any

import pytest

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


def counts(cpus: int, gpus: int, address: str | None = None, num_cpus: int | None = None, **settings: Any) -> tuple[int, int]:
    cluster = Machine(RayConfig(num_cpus=num_cpus), address)
    cluster.cpus, cluster.gpus = cpus, gpus
    config = FilterConfig.model_validate(INPUT | settings)
    return worker_counts.inspecting(config, cluster), worker_counts.scoring(config, cluster)


def test_all_of_the_machine_is_used_where_no_number_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    assert counts(16, 0) == (16, 16)
    assert counts(16, 8) == (16, 8)
    assert counts(16, 8, num_gpus=2) == (16, 4) and counts(16, 1, num_gpus=0.5) == (16, 2) and counts(16, 1, num_gpus=2) == (16, 1)
    assert counts(16, 0, prepare_workers=2) == (16, 8)
    assert counts(16, 8, inspect_workers=3, workers=5) == (3, 5)
    assert counts(128, 64, address="auto") == (128, 64)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert counts(4, 0) == (2, 2), "logical CPUs beyond the cores are no cores"
    assert counts(1, 0, num_cpus=1) == (1, 1)
