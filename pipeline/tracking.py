"""What a run measures, sent to an experiment tracker while it runs: TensorBoard's event files, or Weights & Biases.

A thread reads the metrics files and published results of the run directory, so that no training knows a tracker, and a tracker that fails
ends nothing. A command sends what the run directory has from its beginning on: after a crash the picture is whole again.
"""

from __future__ import annotations

import math
import shutil
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

from stages.engine.metrics_file import read_metrics
from stages.engine.rundir import RunDir

SECONDS = 5.0
"""Between two looks into the run directory."""
FOLDER = "tracking"


class Tracker(Protocol):
    """Where numbers go."""

    def log(self, series: str, step: int, numbers: Mapping[str, float]) -> None:
        """Add the numbers of a series, such as ``finetune/selected``, at a step of it."""

    def restart(self, series: str) -> None:
        """The series begins anew: its training was started again."""

    def close(self) -> None:
        """Write what is left."""


class TensorBoard:
    """Event files in the run's folder ``tracking/tensorboard``, a TensorBoard run per series."""

    def __init__(self, run: RunDir) -> None:
        from tensorboardX import SummaryWriter

        self._make = SummaryWriter
        self._folder = run.path / FOLDER / "tensorboard"
        shutil.rmtree(self._folder, ignore_errors=True)
        self._writers: dict[str, Any] = {}

    def log(self, series: str, step: int, numbers: Mapping[str, float]) -> None:
        """Scalars under their names."""
        if series not in self._writers:
            self._writers[series] = self._make(str(self._folder / series), flush_secs=int(SECONDS))
        for name, value in numbers.items():
            self._writers[series].add_scalar(name, value, step)

    def restart(self, series: str) -> None:
        """Drop the series' files."""
        if series in self._writers:
            self._writers.pop(series).close()
            shutil.rmtree(self._folder / series)

    def close(self) -> None:
        """Close the files."""
        for writer in self._writers.values():
            writer.close()


class WandB:
    """A run of Weights & Biases per command, in a group named after the run directory; its environment variables say project and key."""

    def __init__(self, run: RunDir) -> None:
        folder = run.path / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        self._run: Any = import_module("wandb").init(dir=str(folder), group=run.path.name, name=run.path.name)
        self._known: set[str] = set()

    def log(self, series: str, step: int, numbers: Mapping[str, float]) -> None:
        """Numbers under ``series/name``, drawn over ``series/step``."""
        if series not in self._known:
            self._run.define_metric(f"{series}/*", step_metric=f"{series}/step")
            self._known.add(series)
        self._run.log({f"{series}/step": step} | {f"{series}/{name}": value for name, value in numbers.items()})

    def restart(self, series: str) -> None:
        """Weights & Biases keeps what it was sent; the repeated part follows."""

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()


TRACKERS: dict[str, tuple[str, Callable[[RunDir], Tracker]]] = {"tensorboard": ("tensorboardX", TensorBoard), "wandb": ("wandb", WandB)}
"""By name: the package that it needs, and its class."""


@contextmanager
def tracked(run: RunDir, names: Sequence[str]) -> Generator[None]:
    """Send what the run measures while the ``with`` block runs. Raises ``ValueError`` naming a package that is not installed."""
    for name in names:
        package, _ = TRACKERS[name]
        if find_spec(package) is None:
            raise ValueError(f"--track {name}: the package {package} is not installed; install it with: pip install {package}")
    with ExitStack() as threads:
        for name in names:
            threads.enter_context(_thread(run, name))
        yield


@contextmanager
def _thread(run: RunDir, name: str) -> Generator[None]:
    ended = threading.Event()
    thread = threading.Thread(target=_send, args=(run, name, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _send(run: RunDir, name: str, ended: threading.Event) -> None:
    try:
        tracker = TRACKERS[name][1](run)
        sent: dict[str, Reports] = {}
        last = False
        while not last:
            last = ended.wait(SECONDS)
            send_new(run, tracker, sent)
        tracker.close()
    except Exception as error:  # whatever a tracker raises: the run goes on
        print(f"--track {name}: nothing more is sent: {type(error).__name__}: {error}", file=sys.stderr, flush=True)


Reports = list[tuple[int, dict[str, float]]]


def send_new(run: RunDir, tracker: Tracker, sent: dict[str, Reports]) -> None:
    """Send the reports that are new. ``sent``: those of each series that were, which this updates."""
    for series, reports in series_of(run).items():
        before = sent.get(series, [])
        if reports[: len(before)] != before:
            tracker.restart(series)
            before = []
        for step, numbers in reports[len(before) :]:
            tracker.log(series, step, numbers)
        sent[series] = reports


def series_of(run: RunDir) -> dict[str, Reports]:
    """The numbers so far, by series: reports of trainings at their steps, and the results of each published step at step 0."""
    found: dict[str, Reports] = {}
    for path in sorted([*run.path.glob("*/metrics.jsonl"), *run.path.glob("*/metrics/*.jsonl")]):
        place = path.relative_to(run.path)
        name = place.parts[0] if path.name == "metrics.jsonl" else f"{place.parts[0]}/{path.stem}"
        for report in read_metrics(path):
            series = f"{name}/{report['phase']}" if "phase" in report else name
            numbers = {key: value for key, value in flat(report) if key != "step"}
            found.setdefault(series, []).append((report["step"], numbers))
    for folder in sorted(path for path in run.path.glob("*/") if (path / "index.json").exists()):
        index = run.step(folder.name).index()
        numbers = dict(flat({"counts": index.counts, "results": index.results})) if index else {}
        if numbers:
            found[f"{folder.name}/results"] = [(0, numbers)]
    return found


def flat(value: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """The finite numbers in nested mappings, by path."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from flat(inner, f"{name}/{key}" if name else str(key))
    elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        yield name, float(value)
