"""Folders and URLs of data sets: listings, file sizes, joined paths; and digests of names, so that a plan finds one among millions.

A digest has 8 bytes. The probability that two of ten million names have the same one is 3 in a million. It is of its process alone.
"""

from __future__ import annotations

import os
import stat
from array import array
from collections.abc import Collection
from typing import Any

import numpy as np
from fsspec.implementations.local import LocalFileSystem

from stages.datasets.io import image_files
from stages.datasets.io.faults import Fault
from stages.engine import storage

RECENT = 1000
"""Files whose sizes are kept."""
WEB = ("http://", "https://")
"""Beginnings of URLs of web servers."""


def listing(folder: str, *, what: str) -> dict[str, int | None]:
    """Sizes in bytes of the files in a folder by name. Raises ``ValueError`` naming it when it cannot be listed."""
    filesystem, path = storage.locate(folder)
    try:
        entries: list[dict[str, Any]] = filesystem.ls(path, detail=True)
    except FileNotFoundError:
        raise ValueError(f"{what}: there is no folder {folder}; correct the path or download the data set") from None
    except NotADirectoryError:
        raise ValueError(f"{what}: {folder} is not a folder") from None
    except PermissionError:
        raise ValueError(f"{what}: folder {folder} may not be read by this user; change its permissions") from None
    return {entry["name"].rstrip("/").rsplit("/", 1)[-1]: entry["size"] for entry in entries if entry["type"] == "file"}


def digest(name: str) -> int:
    """A signed number of 64 bits for a name, never 0."""
    return hash(name) or 1


def digests_of(names: Collection[str]) -> np.ndarray:
    """The same of many, int64 [n]."""
    found = np.fromiter(map(hash, names), np.int64, len(names))
    found[found == 0] = 1
    return found


def repeated(*digests: array[int]) -> np.ndarray:
    """Digests that occur more than once in all lists together, sorted, int64 [n]."""
    ordered = np.sort(np.concatenate([np.frombuffer(part, dtype=np.int64) for part in digests]))
    return np.unique(ordered[1:][ordered[1:] == ordered[:-1]])


class Sizes:
    """Sizes of files. The size of a local file is read file by file. Another folder is listed once, which takes 16 bytes per file. Web
    servers are not asked. A file among the last ``RECENT`` is not looked at again: edits of one source follow each other."""

    def __init__(self) -> None:
        self._listed: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self._recent: dict[str, int | None] = {}

    def of(self, path: str) -> int | None:
        """Size in bytes of the file, None where it is not known. Raises ``OSError`` when a folder's server does not answer."""
        if path not in self._recent:
            if len(self._recent) == RECENT:
                self._recent.clear()
            self._recent[path] = self._asked(path)
        return self._recent[path]

    def _asked(self, path: str) -> int | None:
        if path.startswith("/") and "::" not in path:
            return _local_size(path)
        if path.startswith(WEB):
            return None
        size = image_files.patiently(lambda: self._of(path), path, "the size of the image")
        return None if isinstance(size, Fault) else size

    def _of(self, path: str) -> int | None:
        filesystem, name = storage.locate(path)
        if isinstance(filesystem, LocalFileSystem):
            return _local_size(name)
        folder, _, base = path.rpartition("/")
        if folder not in self._listed:
            self._listed[folder] = _by_digest(folder)
        digests, sizes = self._listed[folder]
        place = int(np.searchsorted(digests, digest(base)))
        return int(sizes[place]) if place < len(digests) and int(digests[place]) == digest(base) else None


def _local_size(path: str) -> int | None:
    try:
        found = os.stat(path)  # noqa: PTH116  # a Path would intern every name
    except (OSError, ValueError):  # the latter for a name that no file can have
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _by_digest(folder: str) -> tuple[np.ndarray, np.ndarray]:
    """Digests of the names of a folder's files, ascending, int64 [n], and their sizes, int64 [n]; none when it cannot be listed."""
    try:
        there = {digest(name): size for name, size in listing(folder, what="").items() if size is not None}
    except ValueError:
        there = {}
    ordered = sorted(there.items())
    return np.array([name for name, _ in ordered], np.int64), np.array([size for _, size in ordered], np.int64)


def join(folder: str, name: str) -> str:
    """A path that a data set in ``folder`` names; absolute paths and URLs stay as they are."""
    return name if "://" in name or name.startswith("/") else f"{folder}/{name}"
