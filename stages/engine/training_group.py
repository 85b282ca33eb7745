"""A training loop run by a Ray Train worker group, with its metrics on disk.

The libraries' trainers resume from their own checkpoints, with identical parameters after any kill. Ray Train places the processes, joins
them with torch.distributed, and restarts the group when one dies; its own checkpoints are not used. A mistake in settings or data would
recur after every restart, so it ends the group at once. Rank 0 appends metrics to ``metrics.jsonl`` in the step's folder, and the driver
draws its progress bar from that file. Ray's metrics show the newest values.
"""

from __future__ import annotations

import fcntl
import math
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import ray
import ray.train
from pydantic import BaseModel
from ray.exceptions import RayTaskError
from ray.train import FailureConfig, RunConfig, ScalingConfig, UserCallback
from ray.util.metrics import Gauge

from stages.engine import storage, warm_workers
from stages.engine.cluster import Cluster
from stages.engine.metrics_file import read_metrics
from stages.engine.progress import Progress, progress

C = TypeVar("C", bound=BaseModel)

REPEATED_SECONDS = 0.01
"""Reports closer together than this are those that a resumed training repeats at its start; they have no rate."""
MAX_RESTARTS = 3
"""Restarts of a group after the death of a worker; each resumes from the newest checkpoint."""


class _StopOnUserError(UserCallback):
    """Ends a group in which a worker raised ``ValueError``. Ray Train restarts after other exceptions, not after one of a callback."""

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        """Raise the worker's ``ValueError`` in Ray Train's controller."""
        for error in worker_exceptions.values():
            cause = root_cause(error)
            if isinstance(cause, ValueError):
                raise cause


def fit(
    loop: Callable[[dict[str, Any]], None],
    payloads: Sequence[dict[str, Any]],
    *,
    cluster: Cluster,
    scratch: Path,
    workers: int,
    setting: str,
) -> None:
    """Run ``loop(payload)`` in every worker of a group, with a group per payload at the same time, and wait for all of them.

    A group costs some 20 seconds of processor time before it trains: short trainings better share one. With GPUs each worker gets one.
    ``scratch`` is a folder that every machine of the cluster sees. Ray Train writes its files there, and they are removed at the end.
    Raises what the loop raises, ``ValueError`` without a restart; and ``ValueError`` naming ``setting`` when the cluster is too small.
    """
    cluster.need(len(payloads) * workers, **per_worker(cluster), setting=setting)
    # A worker with a GPU needs a CPU of the same machine, which the sum over machines does not promise.
    warm_workers.release(unless_free=math.inf if cluster.gpus else len(payloads) * workers)
    group = {"scratch": scratch, "workers": workers, "gpus": cluster.gpus}
    if len(payloads) == 1:
        return _run_group(loop, payloads[0], **group)
    task = ray.remote(num_cpus=0, max_retries=0)(_run_group)
    try:
        ray.get([task.remote(loop, payload, **group) for payload in payloads])
    except RayTaskError as error:
        raise root_cause(error) from error


def per_worker(cluster: Cluster) -> dict[str, float]:
    """What a worker of a group takes of the cluster."""
    return {"num_cpus": 1, "num_gpus": min(1, cluster.gpus)}


def _run_group(loop: Callable[[dict[str, Any]], None], payload: dict[str, Any], *, scratch: Path, workers: int, gpus: int) -> None:
    """One group, run from the driver or from a Ray task."""
    from ray.train.torch import TorchConfig, TorchTrainer  # imports torch, which `pipeline plan` and `pipeline status` do not need

    class Trainer(TorchTrainer):
        """Without Ray Data, which would have a process of its own for data sets that there are none of."""

        def _create_default_callbacks(self) -> list[Any]:
            return [callback for callback in super()._create_default_callbacks() if type(callback).__name__ != "DatasetsCallback"]

    ray_files = storage.partial_folder(scratch / "ray-train")
    on_interrupt = signal.getsignal(signal.SIGINT)
    try:
        Trainer(
            loop,
            train_loop_config=payload,
            scaling_config=ScalingConfig(
                num_workers=workers, use_gpu=gpus > 0, resources_per_worker={"CPU": 1} | ({"GPU": 1} if gpus else {})
            ),
            run_config=RunConfig(
                name=scratch.name,  # what the dashboard shows
                storage_path=str(ray_files),
                failure_config=FailureConfig(max_failures=MAX_RESTARTS),
                callbacks=[_StopOnUserError()],
            ),
            torch_config=TorchConfig(backend="cpu:gloo,cuda:nccl" if gpus else "gloo"),  # the trainer exchanges numbers of the CPU, too
        ).fit()
    except SystemExit:  # Ray Train's answer to Ctrl-C
        raise KeyboardInterrupt from None
    except Exception as error:
        raise root_cause(error) from error
    finally:
        if on_interrupt is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, on_interrupt)  # Ray Train does not restore it
        shutil.rmtree(ray_files, ignore_errors=True)


def root_cause(error: BaseException) -> BaseException:
    """The exception that a worker raised, without Ray's wrappers."""
    while True:
        failures = getattr(error, "worker_failures", None)
        inner = next(iter(failures.values())) if failures else None
        for wrapper in ("cause", "training_failed_error", "controller_failure"):
            inner = inner or getattr(error, wrapper, None)
        if not isinstance(inner, BaseException) or inner is error:
            return error
        error = inner


@contextmanager
def checkpoint_lock(folder: Path, *, rank_zero: bool) -> Generator[None]:
    """Lock a checkpoint folder: after a kill of the driver its workers live on for some seconds, and a new attempt waits for them."""
    if not rank_zero:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class Gauges:
    """Ray's metrics of a training: a gauge per reported number, ``ray_<prefix>_<name>`` on the metrics port of the worker's machine."""

    def __init__(self, prefix: str, *, tags: dict[str, str], per_step: dict[str, float], write: bool) -> None:
        """``tags`` distinguish runs. ``per_step``: counts per step, shown as ``<name>_per_second`` since the last report.

        Only rank 0 of a group writes.
        """
        self.prefix, self.tags, self.per_step, self.write = prefix, tags, per_step, write
        self._gauges: dict[str, Gauge] = {}
        self._last: tuple[float, float] | None = None  # step and time of the last report

    def show(self, report: dict[str, Any]) -> None:
        """Set the gauges of all numbers of a report."""
        if not self.write:
            return
        now, last = time.monotonic(), self._last
        self._last = (report["step"], now)
        rates = {}
        if last is not None and now - last[1] > REPEATED_SECONDS:
            pace = (report["step"] - last[0]) / (now - last[1])
            rates = {f"{name}_per_second": count * pace for name, count in self.per_step.items()}
        for name, value in {**report, **rates}.items():
            if isinstance(value, int | float):
                self._gauge(name).set(value, tags=self.tags)

    def _gauge(self, name: str) -> Gauge:
        if name not in self._gauges:
            label = re.sub(r"\W", "_", f"{self.prefix}_{name}")
            self._gauges[name] = Gauge(label, description=f"{self.prefix}: {name}", tag_keys=tuple(self.tags))
        return self._gauges[name]


def seeded(config: C, seed: int) -> C:
    """A copy of the configuration whose ``seed`` is its own plus the run's."""
    return config.model_copy(update={"seed": config.seed + seed})  # ty: ignore[missing-attribute]


def is_rank_zero() -> bool:
    """Whether this process is rank 0 of its training group."""
    return ray.train.get_context().get_world_rank() == 0


@dataclass(frozen=True)
class Training:
    """One phase of a training, for its progress bar: where it reports, under which name, and its number of steps."""

    label: str
    metrics: Path
    steps: int
    phase: str = "training"

    def state(self) -> tuple[int, str] | None:
        """Steps done and the newest loss in words; None before the first report."""
        reports = [report for report in read_metrics(self.metrics) if report.get("phase", "training") == self.phase]
        return (reports[-1]["step"], f"loss {reports[-1]['loss']:.3f}" if "loss" in reports[-1] else "") if reports else None


@contextmanager
def training_progress(trainings: Sequence[Training]) -> Generator[None]:
    """Show trainings that write metrics files while the ``with`` block waits for them: the first at once, others when they begin."""
    ended = threading.Event()
    thread = threading.Thread(target=_draw, args=([training for training in trainings if training.steps], ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _draw(trainings: Sequence[Training], ended: threading.Event) -> None:
    """Draw twice per second, and once more after the end."""
    left = list(trainings)
    drawn: dict[str, Progress] = {}
    last_time = False
    while not last_time:
        last_time = ended.wait(0.5)
        for training in list(left):
            state = training.state()
            if training.label not in drawn and (state or training is trainings[0]):
                drawn[training.label] = progress(training.label, training.steps, unit="steps", row=len(drawn))
            if state:
                drawn[training.label].show(*state)
            if state and state[0] >= training.steps:
                drawn.pop(training.label).close()
                left.remove(training)
    for shown in drawn.values():
        shown.close()


def is_trained(folder: Path, key: str) -> bool:
    """Whether ``folder`` contains the finished training of that key."""
    note = folder / "training.json"
    return note.exists() and storage.read_json(note) == {"key": key}


def publish_trained(folder: Path, key: str, save: Callable[[Path], None]) -> None:
    """Let ``save`` fill a folder, mark it with the key and give it its final name."""
    partial = storage.partial_folder(folder)
    save(partial)
    storage.publish_json(partial / "training.json", {"key": key})
    storage.replace_folder(partial, folder)
