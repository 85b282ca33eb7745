"""The lock of the server of a run's rating page: one server per run. It is not the lock of the run directory, so other commands can run."""

from __future__ import annotations

import fcntl
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

_NAME = ".server.lock"


@contextmanager
def held(folder: Path) -> Generator[None]:
    """Hold the lock of the page in ``folder``; raises ``ValueError`` when another server has it."""
    with open(folder / _NAME, "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"another `pipeline annotate serve` uses {folder}; stop it first") from None
        yield


def is_held(folder: Path) -> bool:
    """Whether a server is running."""
    try:
        with open(folder / _NAME) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
