"""How many Ray actors inspect and score where the configuration names no number: as many as the machine, or the joined cluster, has room
for."""

from __future__ import annotations

import os

from stages.engine.cluster import Cluster
from stages.filter.config import FilterConfig


def inspecting(config: FilterConfig, cluster: Cluster) -> int:
    """Actors that decode and measure, and that write shards: one per core. Does not start a local cluster."""
    return config.inspect_workers or _cores(cluster)


def scoring(config: FilterConfig, cluster: Cluster) -> int:
    """Actors that score: as many as the GPUs have room for; without GPUs one per core, half as many where tasks prepare for them. Connects
    to the cluster."""
    if config.workers is not None:
        return config.workers
    if cluster.gpus:
        return max(1, int(cluster.gpus / (config.num_gpus or 1)))
    return max(1, _cores(cluster) // (2 if config.prepare_workers else 1))


def _cores(cluster: Cluster) -> int:
    """Cores of a joined cluster, or of this machine: a local cluster may have more logical CPUs than cores."""
    if cluster.address is not None:
        return max(1, cluster.cpus)
    cores = os.cpu_count() or 1
    return min(cluster.config.num_cpus or cores, cores)
