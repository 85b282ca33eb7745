"""What readers return: slices of a data set, which are small, and rows with their images."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.datasets.config import WorldConfig
from stages.datasets.io.blocks import Block, Spans, cut_blocks
from stages.engine import images, storage
from stages.engine.ids import content_id, settings_hash

_JSON = json.JSONEncoder(ensure_ascii=False)


@dataclass(frozen=True)
class Request:
    """How a data set is to be read.

    unit_rows: rows per slice at most. key: configuration key that error messages name. edited: whether the edited images are needed, which
    sources and references do without. seed: of the run, for draws. world: what the toy world draws.
    """

    unit_rows: int
    key: str
    edited: bool = True
    seed: int = 0
    world: WorldConfig | None = None


@dataclass(frozen=True)
class Slice:
    """Some rows of a data set, without their images. A plan contains slices of all rows, so a slice must be small.

    ``location`` is the folder of the data set and ``images`` the folder of the images where it differs. Neither is part of the fingerprint,
    so a copy in another folder is the same work. ``shared`` is what all rows need, ``rows`` are pairs of row number and what the reader
    needs to know about that row: spans, Arrow columns, or a list where few rows were picked. ``edited``: whether the edited images are
    wanted. ``content`` is the fingerprint where a reader does not want a hash of the other fields. ``changed``: what the image files are
    like now, if they are not as a unit read them before (stages/datasets/seen.py). ``fatal``: numbers of rows that end the process that
    handles them, as found out in this run (stages/engine/fatal_rows.py); they are not touched.
    """

    dataset: str
    location: str
    shared: Mapping[str, Any]
    rows: Sequence[tuple[int, Any]]
    images: str = ""
    edited: bool = True
    content: Any = None
    changed: str = ""
    fatal: frozenset[int] = frozenset()

    def part(self, first: int, last: int) -> Slice:
        """The rows at the places ``first`` to ``last - 1``."""
        return replace(self, rows=self.rows[first:last])

    def without(self, places: Collection[int]) -> Slice:
        """The same slice, the rows at these places marked as fatal."""
        return replace(self, fatal=self.fatal | {self.rows[place][0] for place in places})

    @cached_property
    def fingerprint(self) -> Any:
        """Plain JSON value, a hash in general, of what the rows are made of as far as that is known without looking at images."""
        if self.content is not None:
            return self.content
        rows = self.rows.spans if isinstance(self.rows, Spans) else list(self.rows)
        own = settings_hash("slice", self.dataset, dict(self.shared), rows)
        return settings_hash(own, self.changed) if self.changed else own


class Rows(Sequence[tuple[int, Any]]):
    """Rows numbered from ``first`` on, of which each has an entry of its own: behaves like a list of (number, entry).

    The entries are tuples whose values of one place are all of one type, kept as Arrow columns instead of Python's objects.
    """

    def __init__(self, first: int, entries: Sequence[tuple[Any, ...]]) -> None:
        self.first, self._count = first, len(entries)
        columns = (pa.array(values) for values in zip(*entries, strict=True))
        self.columns = [column.dictionary_encode() if pa.types.is_string(column.type) else column for column in columns]

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> tuple[int, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[tuple[int, Any]]: ...
    def __getitem__(self, index: int | slice) -> tuple[int, Any] | Sequence[tuple[int, Any]]:
        if isinstance(index, slice):
            return [self[place] for place in range(self._count)[index]]
        index = range(self._count)[index]
        return self.first + index, tuple(column[index].as_py() for column in self.columns)

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        plain = (column.dictionary_decode() if pa.types.is_dictionary(column.type) else column for column in self.columns)
        return enumerate(zip(*(column.to_pylist() for column in plain), strict=True), start=self.first)  # 25 times as fast as with codes


class Numbers(Sequence[tuple[int, None]]):
    """Rows that are known by their number alone, from ``first`` to ``last - 1``: behaves like a list of (number, None)."""

    def __init__(self, first: int, last: int) -> None:
        self.numbers = range(first, last)

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, index: int) -> tuple[int, None]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[tuple[int, None]]: ...
    def __getitem__(self, index: int | slice) -> tuple[int, None] | Sequence[tuple[int, None]]:
        return (self.numbers[index], None) if isinstance(index, int) else [(number, None) for number in self.numbers[index]]


def cut(dataset: str, location: str, shared: Mapping[str, Any], entries: Iterable[Any], unit_rows: int) -> list[Slice]:
    """Slices of at most ``unit_rows`` rows, numbered from 0 in the order of ``entries``, which are read slice by slice.

    Plans of tuples of texts and numbers take the least memory.
    """
    place, left = storage.absolute(location), iter(entries)
    chunks = iter(lambda: list(islice(left, unit_rows)), [])
    return [Slice(dataset, place, shared, _rows(number * unit_rows, chunk)) for number, chunk in enumerate(chunks)]


def _rows(first: int, entries: Sequence[Any]) -> Sequence[tuple[int, Any]]:
    """Rows in columns where Arrow gives back exactly what it is given, else as they are."""
    columnar = set(map(type, entries)) == {tuple} and len(set(map(len, entries))) == 1 and entries[0]
    kinds = [set(map(type, values)) - {type(None)} for values in zip(*entries, strict=True)] if columnar else []
    if kinds and all(len(kind) <= 1 and kind <= {str, int, float, bool} for kind in kinds):
        return Rows(first, entries)
    return list(enumerate(entries, first))


def cut_blockwise(
    dataset: str, location: str, shared: Mapping[str, Any], blocks: Iterable[Block], unit_rows: int, *, images: str = ""
) -> list[Slice]:
    """Slices of at most ``unit_rows`` rows of blocks in their order; a plan of spans, whatever the number of rows."""
    place = storage.absolute(location)
    return [Slice(dataset, place, shared, rows, images and storage.absolute(images)) for rows in cut_blocks(blocks, unit_rows)]


def pick(slices: Sequence[Slice], numbers: Sequence[int]) -> Slice:
    """One slice of the rows with these numbers, in this order. ``slices`` is a whole plan."""
    per_slice = len(slices[0].rows)
    rows = [slices[number // per_slice].rows[number % per_slice] for number in numbers]
    assert [number for number, _ in rows] == list(numbers), "a plan numbers its rows without gaps"
    return replace(slices[0], rows=rows, changed="")


def kept(rows: Sequence[tuple[int, Any]], keep: np.ndarray, first: int = 0) -> Sequence[tuple[int, Any]]:
    """The rows whose numbers are true in ``keep``, bool [n], from the number ``first`` on; spans stay spans."""
    return rows.kept(keep, first) if isinstance(rows, Spans) else [row for row in rows if keep[row[0] - first]]


def position(name: str, number: int) -> str:
    """Where a row came from: a file name and the row number in it, counted from 0."""
    return f"{name}[{number}]"


def is_text(value: Any) -> bool:
    """Whether all text in a JSON value can be stored; half of a surrogate pair cannot."""
    try:
        _JSON.encode(value).encode()
    except UnicodeEncodeError:
        return False
    return True


def numbers_of(positions: pa.ChunkedArray) -> np.ndarray:
    """Row numbers of positions, int64 [n]."""
    number = pc.struct_field(pc.extract_regex(positions, r"\[(?P<number>\d+)\]$"), "number")
    return pc.cast(number, pa.int64()).to_numpy()


@dataclass(frozen=True)
class Edit:
    """One row of a data set: source, instruction and edited image, images as encoded bytes.

    Paths are the images' names in the data set, None where they have none. ``edited`` is empty where the row is read as a source or as a
    reference. ``split`` is train, validation, or empty where the data set does not say it. ``editor`` and ``seed`` say who made the edit,
    as the data set writes it; empty where it does not. ``published_id``: by which the data set's ratings know the edit
    (stages/datasets/published_ids.py); empty where it has none. ``benchmark``: whose item the source is. ``metadata`` is JSON text.
    """

    row_id: str
    position: str
    dataset: str
    source: bytes
    source_path: str | None
    instruction: str
    edited: bytes = b""
    edited_path: str | None = None
    language: str = "en"
    task: str = ""
    licence: str = ""
    metadata: str = "{}"
    split: str = ""
    editor: str = ""
    seed: str = ""
    published_id: str = ""
    benchmark: str = ""

    @cached_property
    def source_sha256(self) -> str:
        """sha256 of the source's bytes."""
        return hashlib.sha256(self.source).hexdigest()

    @cached_property
    def edited_sha256(self) -> str:
        """sha256 of the edited image's bytes."""
        return hashlib.sha256(self.edited).hexdigest()

    @cached_property
    def sample_id(self) -> str:
        """Id made of both images and the instruction, by which a scored edit is recognised when it is read again."""
        return content_id("sample", self.source_sha256, self.instruction, self.edited_sha256)

    def row(self, *, with_images: bool) -> dict[str, Any]:
        """Row of the ``edits`` contract. Without images it names their paths alone, as the Hub's image struct allows."""
        return {
            "sample_id": self.sample_id,
            "dataset": self.dataset,
            "source": images.stored(self.source, self.source_path) if with_images else {"bytes": None, "path": self.source_path},
            "instruction": self.instruction,
            "edited": images.stored(self.edited, self.edited_path) if with_images else {"bytes": None, "path": self.edited_path},
            "language": self.language,
            "task": self.task,
            "licence": self.licence,
            "position": self.position,
            "image_bytes": len(self.source) + len(self.edited),
            "metadata": self.metadata,
        }
