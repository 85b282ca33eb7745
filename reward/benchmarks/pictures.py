"""References to a benchmark's images, which are read when they are needed.

A benchmark of a thousand items has gigabytes of images. Items therefore carry references with content hashes. The bytes are read unit by
unit, and must still have the hash that they had when the benchmark was loaded.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

CONTENT_DIGITS = 24
"""Hexadecimal digits kept of a sha256: 96 bits."""


@dataclass(frozen=True)
class Picture:
    """An encoded image: a file of its own, or a cell of a Parquet table.

    content: hash of the bytes. column: empty where the file is the image. index: of the image in a cell with several, else None.
    """

    file: str
    content: str
    column: str = ""
    row: int = 0
    index: int | None = None


def content_of(data: bytes) -> str:
    """Name of the bytes."""
    return hashlib.sha256(data).hexdigest()[:CONTENT_DIGITS]


def from_file(path: Path) -> Picture:
    """The image in a file. Raises ``ValueError`` naming the file where it cannot be read."""
    try:
        return Picture(str(path), content_of(path.read_bytes()))
    except OSError as error:
        raise ValueError(f"the image {path} cannot be read ({error.strerror}); complete the copy of the benchmark") from None


def read(pictures: Sequence[Picture]) -> dict[str, bytes]:
    """Encoded images by content, each read once. Raises ``ValueError`` where one is no longer what it was."""
    wanted = {picture.content: picture for picture in pictures}
    cells: dict[tuple[str, str], list[Picture]] = defaultdict(list)
    found: dict[str, bytes] = {}
    for picture in wanted.values():
        if picture.column:
            cells[picture.file, picture.column].append(picture)
        else:
            found[picture.content] = Path(picture.file).read_bytes()
    for (file, column), inside in cells.items():
        found |= _read_cells(file, column, inside)
    for content, data in found.items():
        if content_of(data) != content:
            picture = wanted[content]
            cell = f", row {picture.row}, column {picture.column}" if picture.column else ""
            raise ValueError(f"{picture.file}{cell} changed while the benchmark was being scored; run the command again")
    return found


def _read_cells(file: str, column: str, pictures: Sequence[Picture]) -> dict[str, bytes]:
    """Of a Parquet file only the row groups that hold the wanted rows."""
    import pyarrow.parquet as pq

    table = pq.ParquetFile(file)
    sizes = [table.metadata.row_group(number).num_rows for number in range(table.num_row_groups)]
    found = {}
    for number, (size, end) in enumerate(zip(sizes, accumulate(sizes), strict=True)):
        inside = [picture for picture in pictures if end - size <= picture.row < end]
        if not inside:
            continue
        values = table.read_row_group(number, columns=[column]).column(0)
        for picture in inside:
            cell = values[picture.row - (end - size)].as_py()
            found[picture.content] = (cell if picture.index is None else cell[picture.index])["bytes"]
    return found
