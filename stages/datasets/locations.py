"""Reading a delivered data set wherever it lies (a folder or a URL), with errors that say what to do."""

from __future__ import annotations

import errno
import os
import stat
from typing import Any

import numpy as np
from fsspec.implementations.local import LocalFileSystem

from stages.datasets.digests import digest
from stages.engine import storage

_ABSENT = {errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP}


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


class Sizes:
    """Sizes of files. Local files are asked for one by one; a folder elsewhere is listed once, of which 16 bytes per file stay; web
    servers are not asked."""

    def __init__(self) -> None:
        self._listed: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    def of(self, path: str) -> int | None:
        """Size in bytes of the file, None where it is not known."""
        if path.startswith(("http://", "https://")):
            return None
        filesystem, name = storage.locate(path)
        if isinstance(filesystem, LocalFileSystem):
            return _local_size(name)
        folder, _, base = path.rpartition("/")
        if folder not in self._listed:
            self._listed[folder] = _by_digest(folder)
        digests, sizes = self._listed[folder]
        place = int(np.searchsorted(digests, np.uint64(digest(base))))
        return int(sizes[place]) if place < len(digests) and int(digests[place]) == digest(base) else None


def _local_size(path: str) -> int | None:
    try:
        found = os.stat(path)  # noqa: PTH116  # a Path would intern every name
    except (OSError, ValueError):  # the latter for a name that no file can have
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _by_digest(folder: str) -> tuple[np.ndarray, np.ndarray]:
    """Digests of the names of a folder's files, ascending, uint64 [n], and their sizes, int64 [n]; none when it cannot be listed."""
    try:
        there = {digest(name): size for name, size in listing(folder, what="").items() if size is not None}
    except ValueError:
        there = {}
    ordered = sorted(there.items())
    return np.array([name for name, _ in ordered], np.uint64), np.array([size for _, size in ordered], np.int64)


def join(folder: str, name: str) -> str:
    """A path named in a data set that lies in ``folder``; absolute paths and URLs stay as they are."""
    return name if "://" in name or name.startswith("/") else f"{folder}/{name}"


def is_row_fault(error: OSError | ValueError) -> bool:
    """Whether a failed read is the row's fault (no such file, not allowed, impossible name) rather than the disk's or the network's."""
    if isinstance(error, (ValueError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)):
        return True
    return error.errno in _ABSENT
