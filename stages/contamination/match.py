"""Which edits have a source or an instruction that a reference has: a benchmark, other data, the reward model's training data.

In: tables of the contracts ``inspected`` and ``references``. Out: one of the contract ``contamination``; nothing else is read or written.
A source matches exactly (equal bytes) or nearly (perceptual hashes that differ in few bits); an instruction matches when it has the same
words (reward/likeness.py). Per edit and reference there is at most one row for images and one for the instruction: the
item that matches best, and how many others do. "Remove the dog" occurs twice without any leak, so by default only an image counts.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reward.likeness import NO_PAIRS, Lookup, NearHashes, Pairs
from stages.contamination.config import Counts
from stages.engine import contracts
from stages.engine.tables import with_place

EXACT, NEAR, INSTRUCTION = "exact image", "near image", "instruction"
FOUND = with_place(contracts.CONTAMINATION)
"""Matches, and which of the given edits each is of."""
PART = 1024
"""Edits compared at the same time, which bounds the memory."""


def find(inspected: pa.Table, references: pa.Table, *, distance: int | None, counts: Counts) -> pa.Table:
    """Matches in the order of references and, within one, of edits. ``distance``: bits for a near image; None: equal bytes only."""
    tables = [known.matches(inspected) for known in split(references, distance, counts)]
    return (
        pa.concat_tables([FOUND.empty_table(), *tables])
        .select(contracts.CONTAMINATION.names)
        .cast(contracts.CONTAMINATION)
        .combine_chunks()
    )


def split(references: pa.Table, distance: int | None, counts: Counts) -> list[Known]:
    """The references one by one, as :func:`find` has them."""
    names = pc.unique(references["reference"]).to_pylist()
    return [Known(references.filter(pc.equal(references["reference"], name)), name, distance, counts) for name in names]


class Known:
    """The items of one reference, in which edits are looked up."""

    def __init__(self, items: pa.Table, name: str, distance: int | None, counts: Counts) -> None:
        self.items, self.name, self.counts = items, name, counts
        self.contents, self.texts = (pc.unique(items[column]) for column in ("source_sha256", "instruction"))
        self.words = _codes(items["instruction"], self.texts)
        self.silent = pc.equal(items["instruction"], "").to_numpy(zero_copy_only=False)
        self.by_words = Lookup(np.where(self.silent, -1, self.words))
        self.by_content = Lookup(_codes(items["source_sha256"], self.contents))
        self.by_hash = None if distance is None else NearHashes(items["source_phash"].to_numpy(), distance)

    def matches(self, inspected: pa.Table) -> pa.Table:
        """Matches of some edits, a multiple of ``PART`` where more follow: rows of :data:`FOUND`."""
        codes, words = _codes(inspected["source_sha256"], self.contents), _codes(inspected["instruction"], self.texts)
        hashes = inspected["source_phash"].to_numpy()
        tables = [FOUND.empty_table()]
        for first in range(0, inspected.num_rows, PART):
            part = slice(first, first + PART)
            exact = self.by_content.all_equal_to(codes[part])
            near = self.by_hash.near(hashes[part]) if self.by_hash else NO_PAIRS
            near = Pairs(*(column[~np.isin(near.left, exact.left)] for column in near))  # an exact match is no near match as well
            same_words = np.zeros(len(codes[part]), dtype=bool)
            for match, pairs in ((EXACT, exact), (NEAR, near)):
                same_text = (words[part][pairs.left] == self.words[pairs.right]) & ~self.silent[pairs.right]
                edit, best, others, anywhere = _best(pairs, same_text)
                same_words[edit] |= anywhere
                is_counted = anywhere if self.counts == "image-and-instruction" else np.ones(len(edit), dtype=bool)
                found = (first + edit, pairs.right[best], match, pairs.distance[best], anywhere, others, is_counted)
                tables.append(_table(inspected, self.items, self.name, *found))
            spoken, item, total = self.by_words.first_equal_to(words[part])
            alone = ~same_words[spoken]  # where an image with these words matches, that row says so
            spoken, item, total = spoken[alone], item[alone], total[alone]
            always = np.full(len(spoken), self.counts == "image-or-instruction")
            found = (first + spoken, item, INSTRUCTION, None, np.ones(len(spoken), dtype=bool), total - 1, always)
            tables.append(_table(inspected, self.items, self.name, *found))
        return pa.concat_tables(tables).combine_chunks()


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
        pa.array(edit, pa.int64()),
        inspected["sample_id"].take(pa.array(edit)),
        pa.array([name] * count, pa.string()),
        items["item"].take(pa.array(item)),
        pa.array([match] * count, pa.string()),
        pa.nulls(count, pa.int32()) if distance is None else pa.array(distance.astype(np.int32)),
        pa.array(same_instruction),
        pa.array(others.astype(np.int64)),
        pa.array(is_counted),
    ]
    return pa.table(columns, schema=FOUND)


def _best(pairs: Pairs, same_text: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Per edit with pairs: the edit, its best pair, how many others it has, and whether the words of the best match too; [edits] each.

    The best pair is one with the same words, then the nearest, then the first in the reference. ``same_text``: bool [pairs], same words.
    """
    order = np.lexsort((pairs.right, pairs.distance, ~same_text, pairs.left))
    edit, starts, counts = np.unique(pairs.left[order], return_index=True, return_counts=True)
    best = order[starts]
    return edit, best, counts - 1, same_text[best]


def _codes(texts: pa.ChunkedArray, known: pa.Array) -> np.ndarray:
    """Where texts are in ``known``, int64 [texts]; -2 where they are not."""
    return pc.fill_null(pc.index_in(texts, value_set=known), -2).to_numpy().astype(np.int64)
