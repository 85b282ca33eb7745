"""Progress of work: a bar on a terminal, a line per minute elsewhere, so that a log file stays readable and is never silent for long."""

from __future__ import annotations

import sys
import threading
import time
from typing import Protocol

from tqdm import tqdm

SECONDS_PER_LINE = 60.0
LINE = "{desc}: {n_fmt}/{total_fmt} {unit}, {percentage:.0f} %, {elapsed} elapsed, {remaining} left{postfix}"


class Progress(Protocol):
    """What both forms do. ``n`` counts from zero to the total; ``note`` is shown behind it."""

    def show(self, n: float, note: str = "", total: float | None = None) -> None:
        """Set the count, and the total where it has changed."""

    def close(self) -> None:
        """Show the last state for good."""


class _Bar:
    def __init__(self, label: str, total: float, unit: str, initial: float, row: int) -> None:
        self._bar = tqdm(total=total, initial=initial, desc=label, unit=f" {unit}", position=row, dynamic_ncols=True)

    def show(self, n: float, note: str = "", total: float | None = None) -> None:
        self._bar.total = self._bar.total if total is None else total
        self._bar.set_postfix_str(note, refresh=False)
        self._bar.update(n - self._bar.n)

    def close(self) -> None:
        self._bar.refresh()
        self._bar.close()


class _Lines:
    """The first line comes at once; then a thread prints the newest state each minute, whether or not it has changed, until all is done."""

    def __init__(self, label: str, total: float, unit: str, initial: float) -> None:
        self._label, self._total, self._unit, self._initial = label, total, unit, initial
        self._n, self._note, self._started = initial, "", time.monotonic()
        self._ended = threading.Event()
        self._print()
        self._thread = threading.Thread(target=self._repeat, daemon=True)
        self._thread.start()

    def show(self, n: float, note: str = "", total: float | None = None) -> None:
        self._n, self._note = n, note
        self._total = self._total if total is None else total

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._print()

    def _repeat(self) -> None:
        while not self._ended.wait(SECONDS_PER_LINE):
            if self._n < self._total:
                self._print()

    def _print(self) -> None:
        elapsed = time.monotonic() - self._started
        line = tqdm.format_meter(
            self._n, self._total, elapsed, prefix=self._label, unit=self._unit, initial=self._initial, postfix=self._note, bar_format=LINE
        )
        print(line, file=sys.stderr, flush=True)


def progress(label: str, total: float, *, unit: str, initial: float = 0, row: int = 0) -> Progress:
    """Progress of ``total`` units on standard error, of which ``initial`` are done. ``row``: of bars drawn together."""
    return _Bar(label, total, unit, initial, row) if sys.stderr.isatty() else _Lines(label, total, unit, initial)
