"""Starting Ray on a machine that is too busy for it at first."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from stages.engine import cluster
from stages.engine.config import RayConfig


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen]:
    """The processes that attempts to start Ray leave behind; every attempt fails."""
    processes: list[subprocess.Popen] = []

    def init(**_: Any) -> SimpleNamespace:
        processes.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))
        raise Exception("The current node timed out\nduring startup.")

    monkeypatch.setattr(cluster.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(cluster.ray, "shutdown", lambda: None)
    monkeypatch.setattr(cluster.ray, "init", init)
    return processes


def test_a_slow_start_is_tried_again(starts: list[subprocess.Popen], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture) -> None:
    fail = cluster.ray.init
    ready = SimpleNamespace(dashboard_url="")
    monkeypatch.setattr(cluster.ray, "init", lambda **given: ready if len(starts) == 2 else fail(**given))
    bystander = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    cluster.Cluster(RayConfig()).connect()
    assert len(starts) == 2 and not any(psutil.pid_exists(process.pid) for process in starts)
    assert bystander.poll() is None
    bystander.communicate(b"\n")
    assert "attempt 3 of 5" in capfd.readouterr().err


def test_ray_that_never_starts_is_one_sentence(starts: list[subprocess.Popen]) -> None:
    with pytest.raises(ValueError, match=r"did not start on this machine in 5 attempts \(The current node timed out during startup\.\)"):
        cluster.Cluster(RayConfig()).connect()
    assert len(starts) == 5 and not any(psutil.pid_exists(process.pid) for process in starts)


def test_more_cpus_than_the_machine_bears_are_refused(starts: list[subprocess.Popen], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "cores", lambda: 2)
    with pytest.raises(ValueError, match=r"^ray\.num_cpus asks for 33 CPUs on a machine of 2 cores.*at most 16 per core"):
        cluster.Cluster(RayConfig(num_cpus=33)).connect()
    assert not starts
