"""Blocks of the records of a text table: what a plan of it consists of, with the bytes of each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from stages.datasets.io import files
from stages.datasets.io.text_tables import Bad, Record, header, records

BLOCK_RECORDS = 256
"""Records of a block, which ends where reading can begin."""


class TextBlock(NamedTuple):
    """``data``: the bytes of a block, from its byte ``begin`` and its line ``line`` (from 1) on to the next block; ``starts``: first byte
    of each of its ``records`` in the file."""

    begin: int
    line: int
    data: bytes
    starts: list[int]
    records: list[Record]

    def lines(self) -> np.ndarray:
        """Number of the line that each record begins in, int64 [records]."""
        ends = np.flatnonzero(np.frombuffer(self.data, np.uint8) == ord("\n"))
        return self.line + np.searchsorted(ends, np.array(self.starts) - self.begin)

    def is_text(self) -> bool:
        """Whether it is certain that all text of its records is valid Unicode; if not, each record must be looked at."""
        try:
            self.data.decode()
        except UnicodeDecodeError:
            return False
        return b"\0" not in self.data and _HALF.search(self.data) is None  # a zero: another encoding than UTF-8


_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
"""The escape of a half of a surrogate pair."""


def columns(path: str, first: Sequence[Record]) -> list[str]:
    """Names of the columns: the header's of CSV and TSV, also those that are there twice, otherwise those of the ``first`` records.

    Raises ``ValueError`` when none of those can be read: then the file is of another format."""
    with files.opened(path) as file:
        named = header(file, path)
    if named is not None:
        return named
    found = list(dict.fromkeys(column for record in first if isinstance(record, dict) for column in record))
    bad = next((record for record in first if isinstance(record, Bad)), None)
    if not found and bad is not None:
        raise ValueError(
            f"{path}: none of its first records can be read (the first: {bad.message}); correct it, or give it the ending of its format"
        )
    return found


def blocks(path: str, unit_rows: int | None = None) -> Iterator[TextBlock]:
    """Blocks of the records of a file. With ``unit_rows`` they end where units end."""
    line = 1

    def block(gathered: list[tuple[int, Record]], end: int | None) -> TextBlock:
        nonlocal line
        begin = gathered[0][0]
        line += content.read(begin - content.tell()).count(b"\n")  # blank lines before the first record
        data = content.read(-1 if end is None else end - begin)
        made = TextBlock(begin, line, data, [start for start, _ in gathered], [record for _, record in gathered])
        line += data.count(b"\n")
        return made

    with files.opened(path) as file, files.opened(path) as content:
        found, number = records(file, path), 0
        following = [*islice(found, 1)]
        while following:
            most = min(BLOCK_RECORDS, unit_rows - number % unit_rows) if unit_rows else BLOCK_RECORDS
            gathered = [*following, *islice(found, most - 1)]
            following = [*islice(found, 1)]
            yield block(gathered, following[0][0] if following else None)
            number += len(gathered)
