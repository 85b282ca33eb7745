"""Files: read from anywhere fsspec reaches, publish atomically.

A file is written beside its final name and renamed, so that a reader sees either nothing or all of it. Object stores have no rename, but
a put is atomic there, so the same functions serve local paths, s3:// and gs://.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import io
import json
import os
import re
import shutil
import tempfile
import threading
import uuid
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem

ROW_GROUP_ROWS, ROW_GROUP_BYTES = 1 << 13, 4 << 20
"""Most rows, and most bytes, of a row group of a published table."""
EXTRAS = {"s3fs": "s3", "gcsfs": "gcs"}
"""This package's extras by what they install, which fsspec's message names."""
CHECKSUM = "checksum"
"""Key of an object's checksum in its file."""
TEMPORARY = ".partial-"
"""Prefix of names that are not published yet; files with it may be deleted at any time."""


class UnknownLocation(ValueError):
    """A URL of a kind that nothing here reads."""


def locate(path: str | Path) -> tuple[Any, str]:
    """File system of a path or URL, and the name in it. Raises ``UnknownLocation`` for an unknown kind of URL, ``OSError`` where its
    reader is not installed."""
    text = str(path)
    if text.startswith("/") and "::" not in text:
        # What fsspec would find, at a tenth of the time: a resumed step asks for every file of every unit
        return LocalFileSystem(), text.rstrip("/") or "/"
    try:
        return fsspec.url_to_fs(text)
    except (ImportError, OSError) as error:
        if isinstance(error, OSError) and "to load lib" not in str(error):  # hdfs:// without Hadoop's libraries says so
            raise
        hint, extra = str(error).partition("\n")[0], next((extra for reader, extra in EXTRAS.items() if reader in str(error)), None)
        hint += f"; it comes with this package's extra {extra}" if extra else ""
        raise OSError(errno.EPROTONOSUPPORT, hint, str(path)) from None
    except (ValueError, TypeError) as error:  # the latter for a kind whose file system needs arguments
        raise UnknownLocation(f"{path} cannot be opened ({error})") from None


def local(folder: str) -> Path | None:
    """The path of a local folder, absolute; None for a URL of another file system."""
    filesystem, name = locate(folder)
    return Path(name).absolute() if isinstance(filesystem, LocalFileSystem) else None


def listed(folder: str) -> list[dict[str, Any]]:
    """Entries of a folder with ``name``, ``size`` and ``type``, as they are now."""
    filesystem, name = locate(folder)
    filesystem.invalidate_cache()
    return filesystem.ls(name, detail=True)


def absolute(path: str) -> str:
    """A path that means the same in every process of this machine: workers of a cluster may have another working directory."""
    return path if "://" in path else str(Path(path).absolute())


def read_bytes(path: str | Path) -> bytes:
    """Content of a file. Raises ``FileNotFoundError`` or another ``OSError`` naming the path."""
    with open_file(path) as file:
        return file.read()


def open_file(path: str | Path) -> io.BufferedReader:
    """A file to read from, as :func:`open` gives it. Raises ``FileNotFoundError`` or another ``OSError`` naming the path."""
    filesystem, name = locate(path)
    if isinstance(filesystem, LocalFileSystem):
        return open(name, "rb")  # fsspec's own file object costs several times as much for a small file
    return filesystem.open(name, "rb")


def publish_bytes(path: str | Path, data: bytes, *, private: bool = False) -> str:
    """Write ``data`` under ``path`` atomically and return its sha256. private: a local file that only its owner can read."""
    filesystem, name = locate(path)
    with _renamed(Path(name), private=private) if isinstance(filesystem, LocalFileSystem) else filesystem.open(name, "wb") as file:
        file.write(data)
    return hashlib.sha256(data).hexdigest()


@contextmanager
def publishing(path: str | Path) -> Generator[HashedFile]:
    """A file to write piece by piece, for data too large for memory. It gets its name when the block ends without an exception.

    For an object store the content is collected on the local disk and put there at the end.
    """
    filesystem, name = locate(path)
    if not isinstance(filesystem, LocalFileSystem):
        with tempfile.NamedTemporaryFile(prefix=TEMPORARY) as file:
            yield HashedFile(file.file)
            file.flush()
            filesystem.put_file(file.name, name)
    else:
        with _renamed(Path(name)) as file, _flushing(file.fileno()):
            yield HashedFile(file)


class HashedFile(io.RawIOBase):
    """A file, with the digest and the size of what has been read from it or written to it so far."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.digest, self.size = file, hashlib.sha256(), 0

    def writable(self) -> bool:
        """For pyarrow, which asks."""
        return True

    def read(self, size: int = -1) -> bytes:
        """As of the file."""
        data = self._file.read(size)
        self._count(data)
        return data

    def write(self, data: Any) -> int:
        """As of the file."""
        self._count(data)
        return self._file.write(data)

    def _count(self, data: bytes) -> None:
        self.digest.update(data)
        self.size += len(data)


@contextmanager
def _renamed(target: Path, *, private: bool = False) -> Generator[IO[bytes]]:
    """A local file that is flushed to the disk and gets its name when the block ends without an exception."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{TEMPORARY}{target.name}-{uuid.uuid4().hex}")
    try:
        with open(partial, "wb", opener=_owner_only if private else None) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)


def _owner_only(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


@contextmanager
def _flushing(descriptor: int) -> Generator[None]:
    """Flush to the disk every tenth of a second, in a thread, so that the flush at the end is short."""
    finished = threading.Event()

    def flush() -> None:
        while not finished.wait(0.1):
            os.fdatasync(descriptor)

    with ThreadPoolExecutor(1) as thread:
        flushes = thread.submit(flush)
        try:
            yield
        finally:
            finished.set()
        flushes.result()


def publish_json(path: str | Path, value: Any, *, private: bool = False) -> str:
    """Write ``value`` as JSON with sorted keys (equal values give equal bytes) and return its sha256; ``private`` as above."""
    return publish_bytes(path, (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode(), private=private)


def read_json(path: str | Path, remedy: str = "restore it or delete it and run the step again") -> Any:
    """Parsed JSON file; what is no file, or not JSON, raises ``ValueError`` naming it."""
    try:
        return json.loads(read_bytes(path))
    except IsADirectoryError:
        raise ValueError(f"{path} is a folder, where a file should be; {remedy}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON ({error}); {remedy}") from None


def publish_checked(path: str | Path, value: Mapping[str, Any]) -> str:
    """Write an object as :func:`publish_json` does, with a checksum of itself as a further key."""
    return publish_json(path, {**value, CHECKSUM: _checksum(value)})


def read_checked(path: str | Path, remedy: str) -> dict[str, Any]:
    """The object that :func:`publish_checked` wrote, without its checksum.

    Raises ``ValueError`` that names the file and ends with the ``remedy`` when it is no such object or does not have its checksum.
    """
    value = read_json(path, remedy)
    if not isinstance(value, dict):
        raise ValueError(f"{path} is damaged: it should be a JSON object; {remedy}")
    if value.pop(CHECKSUM, None) != _checksum(value):
        raise ValueError(f"{path} is damaged: it does not have the checksum of its content; {remedy}")
    return value


def _checksum(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def table_bytes(table: pa.Table) -> bytes:
    """Parquet encoding of a table; equal tables give equal bytes for one pyarrow version.

    Row groups have ``ROW_GROUP_BYTES`` at most, as far as rows are alike, so that one image can be read without hundreds of others.
    """
    buffer = io.BytesIO()
    rows = max(1, min(ROW_GROUP_ROWS, ROW_GROUP_BYTES * table.num_rows // max(1, table.nbytes)))
    pq.write_table(table.combine_chunks(), buffer, compression="zstd", row_group_size=rows, store_schema=True)
    return buffer.getvalue()


def publish_rows(path: str | Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> tuple[int, str]:
    """Write a table that may not fit in memory, and return its rows and its sha256.

    The bytes are those of :func:`table_bytes` for rows of less than ``ROW_GROUP_BYTES / ROW_GROUP_ROWS`` bytes.
    """
    rows = 0
    with publishing(path) as file, pq.ParquetWriter(file, schema, compression="zstd", store_schema=True) as writer:
        for table in even(batches, ROW_GROUP_ROWS):
            writer.write_table(table)
            rows += table.num_rows
        if not rows:
            writer.write_table(schema.empty_table())
    return rows, file.digest.hexdigest()


def even(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """The rows of batches in tables of ``rows`` rows, the last one perhaps shorter."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        left = batch
        while sum(map(len, held)) + len(left) >= rows:
            first = rows - sum(map(len, held))
            yield pa.Table.from_batches([*held, left.slice(0, first)]).combine_chunks()
            held, left = [], left.slice(first)
        held += [left] if len(left) else []
    if held:
        yield pa.Table.from_batches(held).combine_chunks()


def read_table(path: str | Path, columns: Sequence[str] | None = None, filters: Any = None) -> pa.Table:
    """All columns of a local Parquet file or some, rows that pass ``filters`` only; names in the path are never read as columns.

    With filters nothing is read ahead, so that a few images of a file do not need the memory of all. Raises ``ValueError`` for a column
    that the file does not have.
    """
    ahead = filters is None
    try:
        return pq.read_table(path, columns=columns and [*columns], filters=filters, partitioning=None, pre_buffer=ahead, use_threads=ahead)
    except pa.ArrowInvalid as error:
        missing = [] if "FieldRef" not in str(error) else [name for name in columns or () if name not in pq.read_schema(path).names]
        if not missing:
            raise
        raise ValueError(f"{path} has no column {missing[0]}, as another version made it; run its step again") from None


def read_batches(file: str | Path | IO[bytes], rows: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Some columns of a Parquet file in batches of at most ``rows`` rows.

    A reader of row groups keeps memory of each that it has passed, 140 KB of one of a sample index: so a batch has its own.
    """
    table = pq.ParquetFile(file)
    together = max(1, rows // ROW_GROUP_ROWS)
    for first in range(0, table.num_row_groups, together):
        groups = range(first, min(first + together, table.num_row_groups))
        yield from table.iter_batches(rows, row_groups=[*groups], columns=[*columns])


def sha256_of(path: str | Path) -> str:
    """sha256 of a file's content, read in blocks."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def tree_hashes(folder: Path) -> dict[str, str]:
    """sha256 by relative path of every published file below a local folder.

    A file is read once in a process as long as its times and size stay: models are large, and several steps of a command name theirs.
    """
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and TEMPORARY not in str(path))
    return {path.relative_to(folder).as_posix(): _remembered_sha256(str(path.resolve()), *_state(path)) for path in files}


def _state(path: Path) -> tuple[int, int, int, int]:
    """What changes when a file is written or replaced."""
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


@functools.lru_cache(maxsize=4096)
def _remembered_sha256(path: str, *state: int) -> str:
    return sha256_of(path)


def replace_folder(partial: Path, target: Path) -> None:
    """Give a finished folder its final name. A folder of that name is replaced, also one that another process makes in the meantime."""
    target.parent.mkdir(parents=True, exist_ok=True)
    old = target.with_name(f"{TEMPORARY}old-{uuid.uuid4().hex}")
    while True:
        with suppress(FileNotFoundError):
            os.replace(target, old)
        try:
            os.replace(partial, target)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            shutil.rmtree(old, ignore_errors=True)
            continue
        break
    shutil.rmtree(old, ignore_errors=True)


def final_name(path: str) -> str:
    """The path, with the names that partial files and folders in it get when they are done: those that a user knows."""
    return re.sub(rf"{re.escape(TEMPORARY)}([^/]+)-[0-9a-f]{{32}}", r"\1", path)


def partial_folder(target: Path) -> Path:
    """A new folder beside ``target`` to build it in; :func:`replace_folder` gives it its name."""
    partial = target.with_name(f"{TEMPORARY}{target.name}-{uuid.uuid4().hex}")
    partial.mkdir(parents=True)
    return partial
