"""Rows that are addressed by file, block and index in the block, so that a plan does not grow with the number of rows.

A block is what can be read on its own: a row group of a Parquet file, or some records of a text file or a tar that begin at a known byte.
A plan contains spans of neighbouring rows (about one per slice or block); a worker opens a block and reads on while the wanted rows follow.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, islice
from typing import Any, NamedTuple, TypeVar, overload

import numpy as np

T = TypeVar("T")

RowAddress = tuple[str, int, int]
"""File (relative to the data set), block in it, row in the block."""
Numbered = tuple[int, tuple[str, int, int, Any]]
"""Row number in the data set; file, block, row in it and the block's mark."""


class Block(NamedTuple):
    """``rows`` rows of a file. ``mark`` changes when the file's content does, as far as that can be seen without reading it; a reader
    may keep in it what it must know of the block's rows, as plain JSON values."""

    file: str
    start: int
    rows: int
    mark: Any


class Span(NamedTuple):
    """``count`` neighbouring rows of a block, from its row ``first`` on; ``number`` is the number of the first in the data set."""

    number: int
    file: str
    start: int
    first: int
    count: int
    mark: Any


class Spans(Sequence[Numbered]):
    """Rows of a slice as spans: behaves like a list of (number, (file, start, row, mark)); its memory is that of its spans."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self.spans = tuple(spans)
        self._ends = tuple(accumulate(span.count for span in self.spans))

    def __len__(self) -> int:
        return self._ends[-1] if self.spans else 0

    @overload
    def __getitem__(self, index: int) -> Numbered: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Numbered]: ...
    def __getitem__(self, index: int | slice) -> Numbered | Sequence[Numbered]:
        if isinstance(index, slice):
            return [self[place] for place in range(len(self))[index]]
        index = range(len(self))[index]  # of the end where it is negative; IndexError beyond the rows
        place = bisect_right(self._ends, index)
        span = self.spans[place]
        offset = index - (self._ends[place] - span.count)
        return span.number + offset, (span.file, span.start, span.first + offset, span.mark)

    def kept(self, keep: np.ndarray, first: int = 0) -> Spans:
        """The rows whose numbers are true in ``keep``, bool [n], from the number ``first`` on; remaining neighbours stay one span."""
        return Spans([part for span in self.spans for part in _kept(span, keep[span.number - first :][: span.count])])

    def __iter__(self) -> Iterator[Numbered]:
        for span in self.spans:
            for offset in range(span.count):
                yield span.number + offset, (span.file, span.start, span.first + offset, span.mark)


def _kept(span: Span, keep: np.ndarray) -> Iterator[Span]:
    """The parts of a span that are left; ``keep``: bool [rows of the span]."""
    edges = np.flatnonzero(np.diff(keep, prepend=False, append=False)).tolist()
    for begin, end in zip(edges[::2], edges[1::2], strict=True):
        yield span._replace(number=span.number + begin, first=span.first + begin, count=end - begin)


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


def read_addressed(places: Iterable[RowAddress], open_block: Callable[[str, int, int], Iterator[T]]) -> Iterator[T]:
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
