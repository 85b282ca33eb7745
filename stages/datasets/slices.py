"""What readers hand out: slices of a data set to plan with, edits to work on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.datasets.blocks import Block, Spans, cut_blocks
from stages.engine import images, storage
from stages.engine.ids import content_id, settings_hash


@dataclass(frozen=True)
class Slice:
    """Some rows of a data set, without their images: small enough to be held for every row of it.

    ``location`` says where the data set is (``images`` where images are that do not lie beside it) and is no part of the fingerprint:
    a copy elsewhere is the same work. ``shared`` is what all rows need, ``rows`` are pairs of row number and what the reader wants to
    know about that row. Only plain JSON values, or spans of rows.
    """

    dataset: str
    location: str
    shared: Mapping[str, Any]
    rows: Sequence[tuple[int, Any]]
    images: str = ""

    @cached_property
    def fingerprint(self) -> str:
        """Hash of what the rows are made of, as far as it is known without reading images."""
        rows = self.rows.spans if isinstance(self.rows, Spans) else self.rows
        return settings_hash("slice", self.dataset, dict(self.shared), rows)


def cut(dataset: str, location: str, shared: Mapping[str, Any], entries: Sequence[Any], unit_rows: int) -> list[Slice]:
    """Slices of at most ``unit_rows`` rows, numbered from 0 in the order of ``entries``."""
    rows = list(enumerate(entries))
    return [Slice(dataset, storage.absolute(location), shared, rows[first : first + unit_rows]) for first in range(0, len(rows), unit_rows)]


def cut_blockwise(
    dataset: str, location: str, shared: Mapping[str, Any], blocks: Iterable[Block], unit_rows: int, *, images: str = ""
) -> list[Slice]:
    """Slices of at most ``unit_rows`` rows of blocks in their order; a plan of spans, whatever the number of rows."""
    place = storage.absolute(location)
    return [Slice(dataset, place, shared, rows, images and storage.absolute(images)) for rows in cut_blocks(blocks, unit_rows)]


def pick(slices: Sequence[Slice], numbers: Sequence[int]) -> Slice:
    """One slice of the rows with these numbers, in this order; ``slices`` is a whole plan."""
    per_slice = len(slices[0].rows)
    rows = [slices[number // per_slice].rows[number % per_slice] for number in numbers]
    assert [number for number, _ in rows] == list(numbers), "a plan numbers its rows without gaps"
    return replace(slices[0], rows=rows)


def kept(rows: Sequence[tuple[int, Any]], keep: np.ndarray) -> Sequence[tuple[int, Any]]:
    """The rows whose numbers are true in ``keep``, bool [rows of the data set]; spans stay spans."""
    return rows.kept(keep) if isinstance(rows, Spans) else [row for row in rows if keep[row[0]]]


def position(name: str, number: int) -> str:
    """Where a row came from: a file name and the row number in it, counted from 0."""
    return f"{name}[{number}]"


def is_text(value: Any) -> bool:
    """Whether all text in a JSON value can be stored; half of a surrogate pair cannot."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def numbers_of(positions: pa.ChunkedArray) -> np.ndarray:
    """Row numbers of positions, int64 [n]."""
    number = pc.struct_field(pc.extract_regex(positions, r"\[(?P<number>\d+)\]$"), "number")
    return pc.cast(number, pa.int64()).to_numpy()


@dataclass(frozen=True)
class Edit:
    """One delivered edit: images as encoded bytes, their names in the data set where they have one, and what else is known."""

    row_id: str
    position: str
    dataset: str
    source: bytes
    source_path: str | None
    instruction: str
    edited: bytes
    edited_path: str | None
    language: str
    task: str
    licence: str
    metadata: str = "{}"

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
        """Id made of both images and the instruction: what was scored can be recognised when it is read again."""
        return content_id("sample", self.source_sha256, self.instruction, self.edited_sha256)

    def row(self, *, with_images: bool) -> dict[str, Any]:
        """Row of the ``edits`` contract; without images it refers to them by their path, as the Hub's image struct allows."""
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
