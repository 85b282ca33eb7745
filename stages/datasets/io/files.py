"""The files that a path names: one file, all files of a folder, or those that match a pattern. Errors say what is there."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from fsspec.implementations.local import LocalFileSystem

from stages.engine import storage

T = TypeVar("T")

AT_ONCE = 16
"""Files of a server that a plan reads at the same time."""
_WILD = "*?["
SHOWN = 5


def find(path: str, *, suffixes: tuple[str, ...], what: str, in_folder: tuple[str, ...] = ()) -> tuple[str, list[str]]:
    """The folder (path or URL) of the files, and their names relative to it, sorted.

    ``in_folder`` are the endings that count when ``path`` is a folder, default: all ``suffixes``. Raises ``ValueError`` when there are no
    files, or when one is of another kind.
    """
    path = path.rstrip("/")
    filesystem, pattern = storage.locate(path)
    there = isinstance(filesystem, LocalFileSystem) and filesystem.exists(pattern)  # as it is written, e.g. in a folder [2024]
    if any(sign in path for sign in _WILD) and not there:
        folder = _fixed_part(path)
        found = [name for name in filesystem.glob(pattern) if filesystem.isfile(name)]
        names = _below(folder, found)
        if not names:
            raise ValueError(f"{what}: no file matches {path}; {_there(folder)}")
    elif path.lower().endswith(suffixes):
        folder, names = one(path, what=what)
    else:
        folder, in_folder = path, in_folder or suffixes
        names = [name for name in _all(folder, what) if name.lower().endswith(in_folder)]
        if not names:
            kinds = " or ".join(f"*{ending}" for ending in in_folder)
            raise ValueError(f"{what}: {folder} has no {kinds}; name a file or a pattern such as {folder}/train-*; {_there(folder)}")
    odd = [name for name in names if not name.lower().endswith(suffixes)]
    if odd:
        raise ValueError(f"{what}: {odd[0]} in {folder} is not of a kind that is read here ({', '.join(suffixes)})")
    return folder, names


def one(path: str, *, what: str) -> tuple[str, list[str]]:
    """The folder of a file and, as a list, its name. Raises ``ValueError`` when there is no such file."""
    filesystem, name = storage.locate(path)
    if filesystem.isdir(name):
        raise ValueError(f"{what}: {path} cannot be read because it is a folder; name a file in it")
    if not filesystem.isfile(name):
        raise ValueError(f"{what}: there is no file {path}; {_remedy(path)}")
    folder, slash, base = path.rpartition("/")
    return folder or slash or ".", [base]


def _remedy(path: str) -> str:
    """What to do about a path that is not there."""
    if path.startswith("~") or "$" in path:
        return "~ and $NAME are not replaced in a configuration; write the path out"
    return "correct the path or download the data set"


def opened(path: str) -> BinaryIO:
    """A file to read from and seek in. Raises ``ValueError`` when it is no regular file, or this user may not read it."""
    filesystem, name = storage.locate(path)
    if isinstance(filesystem, LocalFileSystem) and Path(name).exists() and not Path(name).is_file():
        raise ValueError(f"{path} is no regular file; opening a pipe or a device could wait for ever: remove it, or name other files")
    try:
        return filesystem.open(name, "rb", block_size=1 << 20)
    except PermissionError:
        raise ValueError(f"{path} cannot be read by this user; change its permissions") from None


def of_each(folder: str, names: Iterable[str], read: Callable[[str], Iterable[T]]) -> Iterator[T]:
    """What ``read`` yields for each file, in the order of ``names``. Files of a server are read ahead, ``AT_ONCE`` at a time: waiting takes
    most of the time there."""
    if storage.local(folder) is not None:
        for name in names:
            yield from read(name)
        return
    left = iter(names)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        ahead = deque(pool.submit(lambda name: list(read(name)), name) for name in islice(left, 2 * AT_ONCE))
        try:
            while ahead:
                found = ahead.popleft().result()
                ahead.extend(pool.submit(lambda name: list(read(name)), name) for name in islice(left, 1))
                yield from found
        finally:
            for waiting in ahead:
                waiting.cancel()


class OneOpen:
    """Files of a data set, one of them open at a time."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._name: str | None = None
        self._file: BinaryIO | None = None

    def get(self, name: str) -> BinaryIO:
        """The open file of that name; the one before is closed."""
        if self._file is None or name != self._name:
            self.close()
            self._name, self._file = name, opened(f"{self.folder}/{name}")
        return self._file

    def close(self) -> None:
        """Close what is open."""
        if self._file is not None:
            self._file.close()
        self._file = None

    def __enter__(self) -> OneOpen:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _all(folder: str, what: str) -> Iterator[str]:
    filesystem, name = storage.locate(folder)
    if not filesystem.exists(name):
        raise ValueError(f"{what}: there is no {folder}; {_remedy(folder)}")
    if not filesystem.isdir(name):
        raise ValueError(f"{what}: {folder} is not a folder, and not a file of a kind that is read here")
    yield from _below(folder, filesystem.find(name))


def _below(folder: str, found: list[str]) -> list[str]:
    """Names relative to the folder, without hidden and unfinished files."""
    top = storage.locate(folder)[1].rstrip("/")
    names = sorted(str(name)[len(top) :].lstrip("/") for name in found)
    return [name for name in names if not any(part.startswith(".") for part in name.split("/"))]


def _fixed_part(path: str) -> str:
    """The folder that a pattern begins in."""
    parts = path.split("/")
    fixed = next(count for count, part in enumerate(parts) if any(sign in part for sign in _WILD))
    return "/".join(parts[:fixed]) or "."


def _there(folder: str) -> str:
    filesystem, name = storage.locate(folder)
    if not filesystem.isdir(name):
        return f"there is no folder {folder}"
    names = sorted(entry.rstrip("/").rsplit("/", 1)[-1] for entry in filesystem.ls(name, detail=False))
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{folder} contains {', '.join(names[:SHOWN]) or 'nothing'}{more}"
