"""Images by reference: where an image of a published table is, read when it is needed.

A reference is a file, a row group of it and a row in that. The image column of one row group is read at a time (a few MiB, see
:func:`stages.engine.storage.table_bytes`), and each process keeps the newest ones, since the candidates of a source are neighbours.
References are small and can be pickled; on several machines their paths mean the same on each.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from stages.engine.rundir import StepFolder

CACHE_BYTES = 32 << 20
"""Encoded images that a process keeps."""


class ImageFile(NamedTuple):
    """A Parquet file with a column ``image`` as it was when references into it were made."""

    path: str
    size: int
    changed: int  # nanoseconds

    @classmethod
    def at(cls, path: Path) -> ImageFile:
        """The file as it is now."""
        found = path.stat()
        return cls(str(path), found.st_size, found.st_mtime_ns)


@dataclass(frozen=True, slots=True)
class ImageReference:
    """The image of one row."""

    file: ImageFile
    row_group: int
    row: int

    def read(self) -> bytes:
        """The encoded image. Raises ``ValueError``, naming the file, when it was removed or changed since the reference was made."""
        data: bytes | None = _NEWEST.images(self.file, self.row_group)[self.row].as_py()
        if data is None:
            raise ValueError(
                f"{self.file.path} has no image in row {self.row} of row group {self.row_group}; repeat the step that wrote it"
            )
        return data


def references(folder: StepFolder, artifact: str, key: str, wanted: Collection[str]) -> dict[str, ImageReference]:
    """References to the images of an artifact's rows by the values of ``key``; only the wanted rows."""
    found = {}
    for part in folder.require().artifacts.get(artifact, []):
        path = folder.path / part.path
        file = ImageFile.at(path)
        with pq.ParquetFile(path) as table:
            for group in range(table.num_row_groups):
                names = table.read_row_group(group, columns=[key])[key].to_pylist()
                found |= {name: ImageReference(file, group, row) for row, name in enumerate(names) if name in wanted}
    return found


class _RowGroups:
    """The image columns of the row groups read last, up to ``capacity`` bytes."""

    def __init__(self, capacity: int) -> None:
        self._free = capacity
        self._kept: OrderedDict[tuple[ImageFile, int], pa.Array] = OrderedDict()
        self._lock = threading.Lock()

    def images(self, file: ImageFile, group: int) -> pa.Array:
        """Encoded images of a row group: binary [row]."""
        with self._lock:
            there = self._kept.get((file, group))
            if there is not None:
                self._kept.move_to_end((file, group))
                return there
            made = _read(file, group)
            self._kept[file, group] = made
            self._free -= made.nbytes
            while self._free < 0 and len(self._kept) > 1:
                self._free += self._kept.popitem(last=False)[1].nbytes
            return made


def _read(file: ImageFile, group: int) -> pa.Array:
    try:
        changed = ImageFile.at(Path(file.path)) != file
    except FileNotFoundError:
        raise ValueError(f"{file.path} was removed while its images were in use; restore it, or repeat the step that wrote it") from None
    if changed:
        raise ValueError(f"{file.path} was changed while its images were in use; leave the run directory alone and start the command again")
    try:
        with pq.ParquetFile(file.path) as table:
            column = table.read_row_group(group, columns=["image.bytes"], use_threads=False)["image"].combine_chunks()
    except (OSError, pa.ArrowInvalid) as error:
        raise ValueError(f"{file.path} is damaged ({error}); repeat the step that wrote it") from None
    return column.field("bytes")


_NEWEST = _RowGroups(CACHE_BYTES)
