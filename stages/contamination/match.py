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

EXACT, NEAR, INSTRUCTION = "exact image", "near image", "instruction"
PART = 1024
"""Edits compared at the same time, which bounds the memory."""


def find(inspected: pa.Table, references: pa.Table, *, distance: int | None, counts: Counts) -> pa.Table:
    """Matches in the order of references and, within one, of edits. ``distance``: bits for a near image; None: equal bytes only."""
    names = pc.unique(references["reference"]).to_pylist()
    tables = [_in_one(inspected, references.filter(pc.equal(references["reference"], name)), name, distance, counts) for name in names]
    return pa.concat_tables([contracts.CONTAMINATION.empty_table(), *tables]).combine_chunks()


def counted(hits: pa.Table) -> pa.ChunkedArray:
    """Ids of the edits that count as contaminated, each once."""
    return pa.chunked_array([pc.unique(hits.filter(hits["counted"])["sample_id"])], pa.string())


def _in_one(inspected: pa.Table, items: pa.Table, name: str, distance: int | None, counts: Counts) -> pa.Table:
    """Matches with the items of one reference."""
    codes, item_codes = _codes(inspected["source_sha256"], items["source_sha256"])
    words, item_words = _codes(inspected["instruction"], items["instruction"])
    silent = pc.equal(items["instruction"], "").to_numpy(zero_copy_only=False)
    by_words = Lookup(np.where(silent, -1, item_words))
    by_content, by_hash = Lookup(item_codes), None if distance is None else NearHashes(items["source_phash"].to_numpy(), distance)
    hashes = inspected["source_phash"].to_numpy()
    rows = []
    for first in range(0, inspected.num_rows, PART):
        part = slice(first, first + PART)
        exact = by_content.all_equal_to(codes[part])
        near = by_hash.near(hashes[part]) if by_hash else NO_PAIRS
        near = Pairs(*(column[~np.isin(near.left, exact.left)] for column in near))  # an exact match is no near match as well
        same_words = np.zeros(len(codes[part]), dtype=bool)
        for match, pairs in ((EXACT, exact), (NEAR, near)):
            same_text = (words[part][pairs.left] == item_words[pairs.right]) & ~silent[pairs.right]
            edit, best, others, anywhere = _best(pairs, same_text)
            same_words[edit] |= anywhere
            is_counted = anywhere if counts == "image-and-instruction" else np.ones(len(edit), dtype=bool)
            rows.append((first + edit, pairs.right[best], match, pairs.distance[best], anywhere, others, is_counted))
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


def _best(pairs: Pairs, same_text: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Per edit with pairs: the edit, its best pair, how many others it has, and whether the words of the best match too; [edits] each.

    The best pair is one with the same words, then the nearest, then the first in the reference. ``same_text``: bool [pairs], same words.
    """
    order = np.lexsort((pairs.right, pairs.distance, ~same_text, pairs.left))
    edit, starts, counts = np.unique(pairs.left[order], return_index=True, return_counts=True)
    best = order[starts]
    return edit, best, counts - 1, same_text[best]


def _codes(left: pa.ChunkedArray, right: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers that are equal where the texts are, int64 [left] and [right]."""
    both = pa.chunked_array([*left.chunks, *right.chunks], pa.string()).combine_chunks().dictionary_encode()
    codes = both.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes[: len(left)], codes[len(left) :]
