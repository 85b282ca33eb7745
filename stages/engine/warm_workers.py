"""Worker actors that outlive a step, for the next step of the same command: a new process takes seconds to import torch and transformers.

Actors for the CPU only, since an idle one must not hold a GPU's memory. They are kept in this process, and end with it or with the cluster.
An idle actor still holds its CPUs of the cluster, so whatever else needs CPUs calls :func:`release` first.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import ray

from stages.engine.fatal_rows import DIED

Options = tuple[str, float]
"""What makes two actors alike: cluster and job, CPUs."""

_idle: dict[Options, list[Any]] = {}


def options(num_cpus: float) -> Options:
    """Those of an actor on the connected cluster; an earlier cluster's actors are never alike."""
    context = ray.get_runtime_context()
    return (context.get_session_name() + context.get_job_id(), num_cpus)


def take(of: Options) -> Any | None:
    """An idle actor, or None. It may have died in the meantime."""
    return _idle[of].pop() if _idle.get(of) else None


def keep(of: Options, actor: Any) -> None:
    """Take in an actor that has finished its work, unless it has died."""
    with suppress(*DIED):
        ray.get(actor.end.remote())  # awaited: an actor with several threads does not keep the order of its calls
        _idle.setdefault(of, []).append(actor)


def end(actor: Any) -> None:
    """End an actor that has finished its work: what the work holds, such as processes of its own, is closed first."""
    with suppress(*DIED):
        ray.get(actor.end.remote())
    ray.kill(actor)


def release(*, beside: Options | None = None, most: int = 0, unless_free: float = math.inf) -> None:
    """End the idle actors, but at most ``most`` of those ``beside``; none where the cluster has that many CPUs ``unless_free``."""
    if ray.available_resources().get("CPU", 0) >= unless_free:
        return
    for key, actors in list(_idle.items()):
        kept = actors[:most] if key == beside else []
        for actor in actors[len(kept) :]:
            ray.kill(actor)
        _idle[key] = kept


def forget() -> None:
    """Drop the handles of a cluster that is being left."""
    _idle.clear()
