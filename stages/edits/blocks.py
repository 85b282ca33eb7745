"""Rows that are addressed by file, block and place in the block, so that a plan does not grow with the number of rows.

A block is what can be read on its own: a row group of a Parquet file, or some records of a text file or a tar that begin at a known byte.
A plan holds spans of neighbouring rows (about one per slice or block); a worker opens a block and reads on while the wanted rows follow.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar, overload

T = TypeVar("T")

Place = tuple[str, int, int]
"""File (relative to the data set), block in it, row in the block."""
Numbered = tuple[int, tuple[str, int, int, str]]
"""Row number in the data set; file, block, row in it and the block's mark."""


class Block(NamedTuple):
    """``rows`` rows of a file. ``mark`` changes when the file's content does, as far as that can be seen without reading it."""

    file: str
    start: int
    rows: int
    mark: str


class Span(NamedTuple):
    """``count`` neighbouring rows of a block, from its row ``first`` on; ``number`` is the number of the first in the data set."""

    number: int
    file: str
    start: int
    first: int
    count: int
    mark: str


class Spans(Sequence[Numbered]):
    """Rows of a slice as spans: reads like a list of (number, (file, start, row, mark)), is as small as its spans."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self.spans = tuple(spans)
        self._ends = [span.number + span.count for span in self.spans]

    def __len__(self) -> int:
        return self._ends[-1] - self.spans[0].number if self.spans else 0

    @overload
    def __getitem__(self, index: int) -> Numbered: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Numbered]: ...
    def __getitem__(self, index: int | slice) -> Numbered | Sequence[Numbered]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        number = self.spans[0].number + index % len(self)
        span = self.spans[bisect_right(self._ends, number)]
        return number, (span.file, span.start, span.first + number - span.number, span.mark)

    def __iter__(self) -> Iterator[Numbered]:
        for span in self.spans:
            for offset in range(span.count):
                yield span.number + offset, (span.file, span.start, span.first + offset, span.mark)


def cut_blocks(blocks: Iterable[Block], unit_rows: int) -> Iterator[Spans]:
    """Slices of ``unit_rows`` rows (the last may be smaller) from blocks in their order; numbers count over all of them."""
    spans: list[Span] = []
    number = held = 0
    for block in blocks:
        first = 0
        while first < block.rows:
            count = min(block.rows - first, unit_rows - held)
            spans.append(Span(number, block.file, block.start, first, count, block.mark))
            number, first, held = number + count, first + count, held + count
            if held == unit_rows:
                yield Spans(spans)
                spans, held = [], 0
    if spans:
        yield Spans(spans)


def read_places(places: Iterable[Place], open_block: Callable[[str, int, int], Iterator[T]]) -> Iterator[T]:
    """Rows in the wanted order. ``open_block(file, start, first)`` yields the rows of a block from its row ``first`` on.

    One block is open at a time, and is read on where the next wanted row lies ahead in it; so rows in order cost one pass, and each row
    out of order costs the beginning of its block. Raises ``ValueError`` when a block has become shorter.
    """
    here: tuple[str, int] | None = None
    rows: Iterator[T] = iter(())
    next_row = 0
    for file, start, row in places:
        if here != (file, start) or row < next_row:
            here, rows, next_row = (file, start), open_block(file, start, row), row
        found = next(islice(rows, row - next_row, None), None)
        if found is None:
            raise ValueError(f"{file} became shorter while it was read; leave the data set alone during a run")
        next_row = row + 1
        yield found
