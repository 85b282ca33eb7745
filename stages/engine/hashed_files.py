"""Which files were hashed before, so that a resumed step asks for their size and times only.

A folder keeps a number of 8 bytes for every file that had the expected hash: a digest of its name, hash, size, and times of its content and
inode (mtime and ctime). A file is trusted while that number is the same, and hashed otherwise; so a copy of a run is hashed once. A bit
that the disk itself changes leaves size and times as they were: only :func:`all_anew` finds it. The numbers are no part of any index, may
be deleted at any time, and a damaged one costs a hash.

A file that was changed less than ``SETTLED`` before it was looked at is not remembered: a later change could get the same time.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from stages.engine import storage

NAME = ".hashed"
SETTLED = 3 * 10**9
"""Nanoseconds: more than the coarsest time stamps of a file system in use (2 seconds)."""
_DIGEST = np.dtype("<u8")


class _Remembered:
    """What is known of the files of one folder."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self.began = _now(folder)
        try:
            data = self.path.read_bytes()
        except OSError:
            data = b""
        self._known = np.unique(np.frombuffer(data[: len(data) // _DIGEST.itemsize * _DIGEST.itemsize], _DIGEST))
        self._more: set[int] = set()
        self._torn = len(data) % _DIGEST.itemsize

    def __contains__(self, digest: int) -> bool:
        place = int(np.searchsorted(self._known, np.uint64(digest)))
        return digest in self._more or (place < len(self._known) and int(self._known[place]) == digest)

    def add(self, digests: Iterable[int]) -> None:
        """Remember files. Where the folder is not writable they are known to this process only."""
        new = [digest for digest in dict.fromkeys(digests) if digest not in self]
        self._more.update(new)
        with suppress(OSError):
            with open(self.path, "ab") as file:
                # A write that was cut short is made whole, so that what follows it begins where a number begins
                file.write(bytes(-self._torn % _DIGEST.itemsize) + np.array(new, _DIGEST).tobytes())
            self._torn = 0


_folders: dict[Path, _Remembered] = {}
_anew = False


@contextmanager
def all_anew() -> Generator[None]:
    """Inside, a file is hashed whatever was remembered of it before."""
    global _anew
    _folders.clear()
    _anew = True
    try:
        yield
    finally:
        _anew = False


def has(folder: Path, name: str, sha256: str) -> bool:
    """Whether a local folder has a file of that name and content."""
    state = _state(folder / name)
    if state is None:
        return False
    remembered, digest = _of(folder), _digest(name, sha256, *state)
    if digest in remembered:
        return True
    if storage.sha256_of(folder / name) != sha256:
        return False
    if state == _state(folder / name) and _settled(state, remembered.began):
        remembered.add([digest])
    return True


def remember(folder: Path, expected: Iterable[tuple[str, str]]) -> None:
    """Files, by name and hash, that this process wrote or had written into a local folder a moment ago."""
    time = _now(folder)
    states = ((name, sha256, _state(folder / name)) for name, sha256 in expected)
    _of(folder).add(_digest(name, sha256, *state) for name, sha256, state in states if state is not None and _settled(state, time))


def _of(folder: Path) -> _Remembered:
    found = _folders.get(folder)
    if found is None:
        if _anew:
            with suppress(OSError):
                (folder / NAME).unlink(missing_ok=True)
        found = _folders[folder] = _Remembered(folder)
    return found


def _state(path: Path) -> tuple[int, int, int] | None:
    """Size and times of a file in nanoseconds; None where there is none, or something else than a file."""
    try:
        found = os.stat(path)  # noqa: PTH116  # a third of the time of a Path's own
    except (FileNotFoundError, NotADirectoryError):
        return None
    return (found.st_size, found.st_mtime_ns, found.st_ctime_ns) if stat.S_ISREG(found.st_mode) else None


def _digest(name: str, sha256: str, size: int, modified: int, changed: int) -> int:
    data = hashlib.blake2b(f"{name}\0{sha256}\0{size}\0{modified}\0{changed}".encode(), digest_size=_DIGEST.itemsize).digest()
    return int.from_bytes(data, "little")


def _now(folder: Path) -> int:
    """The time by the clock that stamps the folder's files: that of a network disk is not this machine's."""
    probe = folder / f"{storage.TEMPORARY}time-{os.getpid()}"
    try:
        probe.touch()
        time = probe.stat().st_mtime_ns
        probe.unlink()
    except OSError:
        return 0  # nothing is remembered in a folder that cannot be written
    return time


def _settled(state: tuple[int, int, int], time: int) -> bool:
    return max(state[1:]) + SETTLED < time
