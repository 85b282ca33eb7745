"""Which edits have a source or an instruction that a reference has: a benchmark, other data, the reward model's training data.

In: tables of the contracts ``inspected`` and ``references``. Out: one of the contract ``contamination``; nothing else is read or written.
A source matches exactly (equal bytes) or nearly (perceptual hashes that differ in few bits, reward/benchmarks/perceptual_hash.py); an
instruction matches when it has the same words. Per edit and reference there is at most one row for images and one for the instruction: the
item that matches best, and how many others do. "Remove the dog" occurs twice without any leak, so by default only an image counts.

Near hashes are found by bands: two hashes within d bits agree in one of d + 1 bands at least (Manku et al. 2007, section 3), so only hashes
that share a band are compared. Memory is bounded by taking the edits in parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.engine import contracts

Counts = Literal["image", "image-and-instruction", "image-or-instruction"]
EXACT, NEAR, INSTRUCTION = "exact image", "near image", "instruction"
BITS = 64
PART = 1024
"""Edits compared at the same time."""


class Pairs(NamedTuple):
    """Rows that match: of edits int64 [pair], of references int64 [pair], and the bits in which their hashes differ int64 [pair]."""

    edit: np.ndarray
    item: np.ndarray
    distance: np.ndarray


def find(inspected: pa.Table, references: pa.Table, *, distance: int | None, counts: Counts) -> pa.Table:
    """Matches in the order of references and, within one, of edits. ``distance``: bits for a near image; None: equal bytes only."""
    names = pc.unique(references["reference"]).to_pylist()
    tables = [_in_one(inspected, references.filter(pc.equal(references["reference"], name)), name, distance, counts) for name in names]
    return pa.concat_tables([contracts.CONTAMINATION.empty_table(), *tables]).combine_chunks()


def counted(hits: pa.Table) -> pa.ChunkedArray:
    """Ids of the edits that count as contaminated, each once."""
    return pa.chunked_array([pc.unique(hits.filter(hits["counted"])["sample_id"])], pa.string())


def _in_one(inspected: pa.Table, items: pa.Table, name: str, distance: int | None, counts: Counts) -> pa.Table:
    codes, item_codes = _codes(inspected["source_sha256"], items["source_sha256"])
    words, item_words = _codes(inspected["instruction"], items["instruction"])
    silent = pc.equal(items["instruction"], "").to_numpy(zero_copy_only=False)
    by_content, by_words = _Sorted(item_codes), _Sorted(np.where(silent, -1, item_words))
    hashes = inspected["source_phash"].to_numpy()
    bands = None if distance is None else _Bands(items["source_phash"].to_numpy(), distance)
    rows = []
    for first in range(0, inspected.num_rows, PART):
        part = slice(first, first + PART)
        exact = Pairs(*by_content.equal_to(codes[part]), np.zeros(0, np.int64))
        exact = exact._replace(distance=np.zeros(len(exact.edit), np.int64))
        near = bands.near(hashes[part]) if bands else exact._replace(edit=exact.edit[:0], item=exact.item[:0], distance=exact.distance[:0])
        near = Pairs(*(column[~np.isin(near.edit, exact.edit)] for column in near))
        same_words = np.zeros(len(codes[part]), dtype=bool)
        for match, pairs in ((EXACT, exact), (NEAR, near)):
            said = (words[part][pairs.edit] == item_words[pairs.item]) & ~silent[pairs.item]
            edit, best, others, anywhere = _best(pairs, said)
            same_words[edit] |= anywhere
            is_counted = anywhere if counts == "image-and-instruction" else np.ones(len(edit), dtype=bool)
            rows.append((first + edit, pairs.item[best], match, pairs.distance[best], anywhere, others, is_counted))
        spoken, item, total = by_words.first_equal_to(words[part])
        alone = ~same_words[spoken]  # where an image with these words matches, that row says so
        spoken, item, total = spoken[alone], item[alone], total[alone]
        always = np.full(len(spoken), counts == "image-or-instruction")
        rows.append((first + spoken, item, INSTRUCTION, None, np.ones(len(spoken), dtype=bool), total - 1, always))
    return pa.concat_tables([contracts.CONTAMINATION.empty_table(), *(_table(inspected, items, name, *row) for row in rows)])


def _table(
    inspected: pa.Table,
    items: pa.Table,
    name: str,
    edit: np.ndarray,
    item: np.ndarray,
    match: str,
    distance: np.ndarray | None,
    same_instruction: np.ndarray,
    others: np.ndarray,
    is_counted: np.ndarray,
) -> pa.Table:
    count = len(edit)
    columns = [
        inspected["sample_id"].take(pa.array(edit)),
        pa.array([name] * count, pa.string()),
        items["item"].take(pa.array(item)),
        pa.array([match] * count, pa.string()),
        pa.nulls(count, pa.int32()) if distance is None else pa.array(distance.astype(np.int32)),
        pa.array(same_instruction),
        pa.array(others.astype(np.int64)),
        pa.array(is_counted),
    ]
    return pa.table(columns, schema=contracts.CONTAMINATION)


def _best(pairs: Pairs, said: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Per edit with pairs: the edit, its best pair (same words first, then the nearest, then the first), how many others there are, and
    whether the words match too."""
    order = np.lexsort((pairs.item, pairs.distance, ~said, pairs.edit))
    edit, starts, counts = np.unique(pairs.edit[order], return_index=True, return_counts=True)
    best = order[starts]
    return edit, best, counts - 1, said[best]


def _codes(left: pa.ChunkedArray, right: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers that are equal where the texts are, int64 [left] and [right]."""
    both = pa.chunked_array([*left.chunks, *right.chunks], pa.string()).combine_chunks().dictionary_encode()
    codes = both.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes[: len(left)], codes[len(left) :]


class _Sorted:
    """Values to look up: which rows have a value."""

    def __init__(self, values: np.ndarray) -> None:
        self.order = np.argsort(values, kind="stable")
        self.values = values[self.order]

    def ranges(self, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the rows with each wanted value begin and end in ``order``."""
        return np.searchsorted(self.values, wanted, "left"), np.searchsorted(self.values, wanted, "right")

    def equal_to(self, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All pairs of a place in ``wanted`` and a row with that value."""
        begins, ends = self.ranges(wanted)
        counts = ends - begins
        left = np.repeat(np.arange(len(wanted)), counts)
        within = np.arange(len(left)) - np.repeat(np.cumsum(counts) - counts, counts)
        return left, self.order[np.repeat(begins, counts) + within]

    def first_equal_to(self, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Places in ``wanted`` whose value occurs, the first row with it, and how many rows have it."""
        begins, ends = self.ranges(wanted)
        found = np.flatnonzero(ends > begins)
        return found, self.order[begins[found]], (ends - begins)[found]


class _Bands:
    """Hashes to compare with, sorted by each of distance + 1 bands of their bits."""

    def __init__(self, hashes: np.ndarray, distance: int) -> None:
        self.hashes, self.distance = hashes, distance
        edges = [round(place) for place in np.linspace(0, BITS, distance + 2)]
        self.bands = [(np.uint64(low), np.uint64((1 << (high - low)) - 1)) for low, high in pairwise(edges)]
        self.sorted = [_Sorted(self._of(hashes, number)) for number in range(len(self.bands))]

    def _of(self, hashes: np.ndarray, number: int) -> np.ndarray:
        low, mask = self.bands[number]
        return (hashes >> low) & mask

    def near(self, hashes: np.ndarray) -> Pairs:
        """All pairs within the distance, each once."""
        return Pairs(*(np.concatenate(columns) for columns in zip(*self._found(hashes), strict=True)))

    def _found(self, hashes: np.ndarray) -> Iterator[Pairs]:
        for number, band in enumerate(self.sorted):
            left, right = band.equal_to(self._of(hashes, number))
            different = hashes[left] ^ self.hashes[right]
            bits = np.bitwise_count(different).astype(np.int64)
            new = bits <= self.distance
            for earlier in range(number):  # a pair that agrees in an earlier band was found there
                new &= self._of(different, earlier) != 0
            yield Pairs(left[new], right[new], bits[new])
