"""Gates on edits that occur before in almost the same form. Exact copies are set aside in any case (stages/filter/duplicates.py).

``near_duplicate``: same words in the instruction, and the perceptual hashes of source, edited image and of their difference are all near.
The difference counts because two edits of one photograph share nearly all of it. Value: the largest of the three distances in bits, to the
earlier edit for which it is smallest; NaN where no earlier edit has the instruction.

``near_embedding``: the same by vectors of your own, one per edit, in a Parquet file with the columns ``sample_id`` and ``embedding``.
Value: the largest cosine similarity to an earlier edit.

Earlier means before it in the data set. Every edit is compared with all earlier ones, also with those that are caught themselves, so
what a value is does not depend on the threshold.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from stages.engine import storage
from stages.filter.gates.config import NearDuplicateGate, NearEmbeddingGate
from stages.filter.gates.finding import Finding, above

HASHES = ("source_phash", "edited_phash", "change_phash")
BLOCK = 2048
"""Edits compared at a time: bounds memory at BLOCK x n values."""


def near_duplicate(inspected: pa.Table, config: NearDuplicateGate) -> Finding:
    """Same words and near hashes. Time grows with the square of how often one instruction occurs."""
    hashes = [inspected[name].to_numpy() for name in HASHES]
    codes = inspected["instruction"].combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    nearest = np.full(len(codes), np.nan)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    ends = np.append(starts[1:], len(codes))
    several = ends - starts > 1
    for start, end in zip(starts[several], ends[several], strict=True):
        rows = order[start:end]  # rows of one instruction, in the order of the data set
        for first in range(0, len(rows), BLOCK):
            block = rows[first : first + BLOCK]
            before = rows[: first + len(block)]
            bits = np.zeros((len(block), len(before)), dtype=np.uint8)
            for column in hashes:
                np.maximum(bits, np.bitwise_count(column[block][:, None] ^ column[before][None]), out=bits)
            bits[np.arange(len(before))[None] >= first + np.arange(len(block))[:, None]] = 255  # itself and later ones
            found = bits.min(axis=1, initial=255).astype(np.float64)
            nearest[block] = np.where(found == 255, np.nan, found)
    return Finding(nearest, nearest <= config.bits, np.full(len(codes), float(config.bits)))


def near_embedding(inspected: pa.Table, config: NearEmbeddingGate) -> Finding:
    """Near vectors. Raises ``ValueError`` naming the file when it has not one vector of one length per edit."""
    assert config.embeddings is not None, "the configuration checks that there is a file"
    if not inspected.num_rows:
        return above(np.empty(0), config.similarity)
    vectors = _vectors(config.embeddings, inspected["sample_id"].to_pylist())
    largest = np.full(len(vectors), np.nan)
    for first in range(0, len(vectors), BLOCK):
        block = vectors[first : first + BLOCK]
        cosine = block @ vectors[: first + len(block)].T
        cosine[np.arange(cosine.shape[1])[None] >= first + np.arange(len(block))[:, None]] = -2.0
        largest[first : first + len(block)] = cosine.max(axis=1)
    largest = np.where(largest < -1.5, np.nan, np.round(largest, 6))
    return above(largest, config.similarity)


def hash_of(path: str) -> str:
    """sha256 of the file of vectors. Raises ``ValueError`` when it cannot be read."""
    try:
        return storage.sha256_of(path)
    except OSError as error:
        raise ValueError(f"filter.gates.near_embedding.embeddings: {path} cannot be read ({type(error).__name__})") from None


def _vectors(path: str, ids: list[str]) -> np.ndarray:
    """Unit vectors float32 [n, width] of the edits in their order."""
    try:
        table = pq.read_table(pa.BufferReader(storage.read_bytes(path)), columns=["sample_id", "embedding"])
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(
            f"filter.gates.near_embedding.embeddings: {path} cannot be read as Parquet with the columns sample_id and embedding ({error})"
        ) from None
    rows = {name: number for number, name in enumerate(table["sample_id"].to_pylist())}
    absent = [name for name in ids if name not in rows]
    if absent:
        raise ValueError(
            f"filter.gates.near_embedding.embeddings: {path} has no vector for {len(absent):,} of {len(ids):,} edits, "
            f"the first is {absent[0]}; the artifact inspected lists the sample ids"
        )
    lists = table["embedding"].combine_chunks().take(pa.array([rows[name] for name in ids]))
    widths = set(pc.list_value_length(lists).to_pylist())
    if len(widths) != 1 or widths & {None, 0}:
        raise ValueError(f"filter.gates.near_embedding.embeddings: the vectors in {path} have several lengths: {sorted(map(str, widths))}")
    vectors = pc.list_flatten(lists).to_numpy(zero_copy_only=False).astype(np.float32).reshape(len(ids), -1)
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not np.isfinite(length).all() or (length == 0).any():
        raise ValueError(f"filter.gates.near_embedding.embeddings: {path} has a vector that is zero or not finite")
    return vectors / length
