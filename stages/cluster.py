"""The Ray cluster of a command: started or joined when the first step needs it.

A command that finds everything done never starts Ray. A local cluster gets more logical CPUs than cores where there are few: placement
is by logical CPUs, and actors plus a training group must be able to coexist on two cores.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from typing import Any

import ray

from stages.config import RayConfig

# Must be set before Ray starts: workers report to the training controller at this interval, and a report blocks the loop until it is seen.
os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.5")


@dataclass
class Cluster:
    """Where the work runs. ``address`` joins an existing cluster (``auto``, ``ray://…`` or ``host:port``); None starts a local one."""

    config: RayConfig
    address: str | None = None
    dashboard_url: str = field(default="", init=False)

    def connect(self) -> None:
        """Start or join Ray once; later calls do nothing. Raises ``ValueError`` when ``address`` does not answer."""
        if ray.is_initialized():
            return
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "namespace": "pipeline"}
        if self.address is None:
            options |= {
                "num_cpus": self.config.num_cpus or max(4, os.cpu_count() or 1),
                "include_dashboard": self.config.dashboard,
                "object_store_memory": self.config.object_store_mb << 20,
                "_temp_dir": self.config.temp_dir,
            }
        else:
            options["address"] = self.address
        try:
            context = ray.init(**options)
        except ConnectionError as error:
            raise ValueError(f"--address {self.address}: no Ray cluster answers there ({error}); start one or leave it out") from None
        self.dashboard_url = f"http://{context.dashboard_url}" if context.dashboard_url else ""
        if self.dashboard_url:
            print(f"Ray dashboard: {self.dashboard_url} (asks for the token that `ray get-auth-token` prints)", flush=True)

    @property
    def gpus(self) -> int:
        """GPUs of the connected cluster."""
        self.connect()
        return int(ray.cluster_resources().get("GPU", 0))

    def close(self) -> None:
        """Leave the cluster; a local one is stopped."""
        if ray.is_initialized():
            ray.shutdown()
