"""The Ray cluster of a command: started or joined when the first step needs it.

A command that finds everything up to date never starts Ray. On a machine with fewer than four cores a local cluster gets four logical
CPUs: Ray places by logical CPUs, and actors and a training group must fit at the same time.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import shutil
import socket
import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import ray
from ray._private.utils import get_num_cpus

from stages.engine import warm_workers
from stages.engine.config import RayConfig

# Must be set before Ray starts. Workers report to the training controller at this interval, and a report blocks the loop until it is read.
os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.5")
# Seconds for a process and for a training group to start: on a busy machine or a network disk Ray's 60 are too few.
os.environ.setdefault("RAY_worker_register_timeout_seconds", "300")
os.environ.setdefault("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "300")

CODE = Path(__file__).resolve().parents[2]
"""The folder of our packages."""
CONNECT_SECONDS = 10.0
"""Time-out of the connection to an existing cluster."""
CPUS_PER_CORE = 16
"""Most CPUs of a local cluster per core of the machine: each may start a process that loads the libraries."""
STARTS = 5
"""Attempts to start Ray: it gives its own processes 30 seconds, which cannot be changed, and a busy machine may need more."""


def cores() -> int:
    """Cores that this process may use: those of its affinity mask, at most the quota of its container."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1  # macOS has no masks
    return max(1, min(affinity, int(get_num_cpus(override_docker_cpu_warning=True))))


@dataclass
class Cluster:
    """Where the work runs. ``address`` joins an existing cluster (``auto``, ``ray://…`` or ``host:port``); None starts a local one."""

    config: RayConfig
    address: str | None = None
    dashboard_url: str = field(default="", init=False)
    _connected: bool = field(default=False, init=False)

    def connect(self) -> None:
        """Start or join Ray once; later calls do nothing. Raises ``ValueError`` when ``address`` does not answer, and for too many CPUs."""
        if ray.is_initialized():
            return
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "namespace": "pipeline"}
        if self.address is None:
            if (self.config.num_cpus or 0) > CPUS_PER_CORE * cores():
                raise ValueError(
                    f"ray.num_cpus asks for {self.config.num_cpus} CPUs on a machine of {cores()} cores, and each may start a process: "
                    f"at most {CPUS_PER_CORE} per core can be had; lower it, or leave it out"
                )
            os.environ.setdefault("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "0")  # a process per training, for clouds that take machines away
            options |= {
                "address": "local",  # otherwise Ray joins any cluster that runs on this machine
                "num_cpus": self.config.num_cpus or max(4, cores()),
                "include_dashboard": self.config.dashboard,
                "object_store_memory": self.config.object_store_mb << 20,
                "_temp_dir": self.config.temp_dir and str(Path(self.config.temp_dir).resolve()),
            }
            print("starting Ray on this machine", file=sys.stderr, flush=True)
        else:
            options["address"] = self.address
            print(f"joining the Ray cluster at {self.address}", file=sys.stderr, flush=True)
        try:
            _check_reachable(self.address)
            with contextlib.chdir(CODE):  # workers get the current folder first on their path, and a user's may hold a finetune.py
                context = ray.init(**options) if self.address else _start(options)
        except ConnectionError as error:
            raise ValueError(
                f"--address {self.address}: no Ray cluster answers there, or it wants another token ({error}); "
                "start one, or set RAY_AUTH_TOKEN to its token"
            ) from None
        self._connected = True
        self.dashboard_url = f"http://{context.dashboard_url}" if context.dashboard_url else ""
        if self.dashboard_url:
            print(f"Ray dashboard: {self.dashboard_url} (asks for the token that `{ray_command()} get-auth-token` prints)", flush=True)

    @property
    def gpus(self) -> int:
        """GPUs of the connected cluster."""
        return self._total("GPU")

    @property
    def cpus(self) -> int:
        """Logical CPUs of the connected cluster."""
        return self._total("CPU")

    def _total(self, resource: str) -> int:
        """Sum over the living nodes; Ray's own sum is too small for a moment after workers have died."""
        self.connect()
        return int(sum(node["Resources"].get(resource, 0) for node in ray.nodes() if node["Alive"]))

    def room(self, *, num_cpus: float, num_gpus: float) -> int:
        """How many processes with so many CPUs and GPUs each fit on the machines of the cluster at the same time."""
        self.connect()
        wanted = {name: one for name, one in (("CPU", num_cpus), ("GPU", num_gpus)) if one}
        machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        return sum(min(int(machine.get(name, 0) / one) for name, one in wanted.items()) for machine in machines)

    def need(self, processes: int, *, num_cpus: float, num_gpus: float, setting: str) -> None:
        """Raise ``ValueError`` unless there is room for so many processes, for which the key ``setting`` of the configuration asks."""
        room = self.room(num_cpus=num_cpus, num_gpus=num_gpus)
        if room < processes:
            each = " and ".join(f"{one:g} {name}" for name, one in (("CPU", num_cpus), ("GPU", num_gpus)) if one)
            raise ValueError(
                f"{setting} asks for {processes} with {each} each, and there is room for {room}: the cluster has {self.cpus} CPUs and "
                f"{self.gpus} GPUs; lower {setting}, {'' if num_gpus else 'raise ray.num_cpus, '}or join a larger cluster with --address"
            )

    def share_of_a_gpu(self, actors: int) -> float:
        """GPUs per actor: one where there are enough, otherwise an even share of one; 0 without GPUs."""
        return 1 / math.ceil(actors / self.gpus) if self.gpus else 0.0

    def close(self) -> None:
        """Disconnect from the cluster; a local one is stopped."""
        if self._connected:
            warm_workers.forget()
            ray.shutdown()
            self._connected = False


def _start(options: dict[str, Any]) -> Any:
    """``ray.init`` of a local cluster, again where Ray's processes were too slow. Raises ``ValueError`` after ``STARTS`` attempts."""
    before = set(psutil.Process().children())
    for attempt in range(1, STARTS + 1):
        try:
            return ray.init(**options)
        except ValueError:
            raise
        except Exception as error:
            ray.shutdown()
            left = set(psutil.Process().children()) - before  # of a node that did not start; Ray forgets them
            for process in left:
                process.kill()
            psutil.wait_procs(left)
            if attempt == STARTS:
                raise ValueError(
                    f"Ray did not start on this machine in {STARTS} attempts ({_shortened(str(error))}): "
                    "close other programs, or look into the newest session folder of ray.temp_dir (without one: /tmp/ray)"
                ) from error
            print(f"Ray did not start in time; attempt {attempt + 1} of {STARTS}", file=sys.stderr, flush=True)


def ray_command() -> str:
    """How a shell in the current folder calls this environment's Ray."""
    script = Path(sysconfig.get_path("scripts")) / "ray"
    found = shutil.which("ray")
    if found and Path(found) == script:
        return "ray"
    here = Path.cwd()
    return str(script.relative_to(here) if script.is_relative_to(here) else script)


def _check_reachable(address: str | None) -> None:
    """Raise ``ConnectionError`` at once where nothing listens at ``host:port``: Ray itself retries for a long time."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        raise ConnectionError(error.strerror or str(error)) from None


def _shortened(message: str, most: int = 200) -> str:
    """A message on one line; of a long one, such as Ray's with twenty lines of a log, the beginning."""
    line = " ".join(message.split())
    return line if len(line) <= most else f"{line[:most]} ..."
