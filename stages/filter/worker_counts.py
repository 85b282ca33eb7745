"""How many Ray actors inspect and score where the configuration names no number: as many as the machine, or the joined cluster, has room
for."""

from __future__ import annotations

from stages.engine.cluster import Cluster, cores
from stages.filter.config import FilterConfig

PREPARE_WORKERS = 2
"""Pieces that are prepared at a time for each slice in flight on a GPU: four processes per GPU, more than photographs need."""
SLICES = 2
"""In flight per scoring actor."""


def inspecting(config: FilterConfig, cluster: Cluster) -> int:
    """Actors that decode and measure, and that write shards: one per core. Does not start a local cluster."""
    return config.inspect_workers or _cores(cluster)


def beside_scoring(config: FilterConfig, cluster: Cluster) -> int:
    """Actors that inspect while others score: one per core; with GPUs half as many, because tasks on CPUs prepare for these, or more where
    the tasks cannot use the other half. Connects to the cluster."""
    every = inspecting(config, cluster)
    if config.inspect_workers is not None or not cluster.gpus:
        return every
    tasks = scoring(config, cluster) * SLICES * preparing(config, cluster)
    return max(1, every // 2, every - tasks)


def preparing(config: FilterConfig, cluster: Cluster) -> int:
    """Tasks that prepare, per slice in flight. Connects to the cluster."""
    if config.prepare_workers is not None:
        return config.prepare_workers
    return PREPARE_WORKERS if cluster.gpus else 0


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
    return min(cluster.config.num_cpus or cores(), cores())
