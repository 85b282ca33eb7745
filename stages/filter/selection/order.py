"""Orders that do not depend on the order of the rows: ids as bytes, numbers drawn by id, sorting with ties broken by id."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.engine.ids import ID_DIGITS, content_id

WORD = 8
"""Digits of an id that are hashed at once, as one integer."""
SORT_KEYS = [("key", "ascending"), ("id", "ascending")]


def fixed_width(ids: pa.ChunkedArray) -> np.ndarray:
    """Ids as bytes [n] of one width, which compare as the ids do."""
    chunks = [pc.cast(pc.cast(chunk, pa.binary()), pa.binary(ID_DIGITS)) for chunk in ids.chunks]
    data = [np.frombuffer(chunk.buffers()[1], f"S{ID_DIGITS}", len(chunk), chunk.offset * ID_DIGITS) for chunk in chunks if len(chunk)]
    return np.concatenate(data) if data else np.empty(0, f"S{ID_DIGITS}")


def hashed(ids: np.ndarray, purpose: str, seed: int) -> np.ndarray:
    """A number in [0, 1) per id (bytes [n] of an id's width), drawn by ``purpose``, ``seed`` and the id alone: float64 [n]."""
    words = np.ascontiguousarray(ids).view("<u8").reshape(len(ids), ID_DIGITS // WORD)
    state = np.full(len(ids), int(content_id("hashed", purpose, seed)[:16], 16), np.uint64)
    for column in range(words.shape[1]):
        state = _scrambled(state ^ words[:, column])
    return (state >> np.uint64(11)).astype(np.float64) / 2.0**53


def ranked(key: np.ndarray, ids: pa.ChunkedArray) -> np.ndarray:
    """Indices that sort by ``key`` float64 [n], smallest first, and equal keys by their ids."""
    return pc.sort_indices(pa.table({"key": key, "id": ids}), SORT_KEYS).to_numpy()


def first(key: np.ndarray, ids: pa.ChunkedArray, count: int) -> np.ndarray:
    """The first ``count`` of them."""
    return pc.select_k_unstable(pa.table({"key": key, "id": ids}), count, SORT_KEYS).to_numpy()


def rank_within(groups: np.ndarray) -> np.ndarray:
    """How many entries of the same group come before each entry: int64 [n] for ``groups`` int [n], both numbers below 2^32."""
    packed = (groups.astype(np.uint64) << np.uint64(32)) | np.arange(len(groups), dtype=np.uint64)
    packed.sort()  # groups one after the other, inside a group in the order of the entries
    sizes = np.bincount(groups)
    starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
    ranks = np.empty(len(groups), np.int64)
    ranks[(packed & np.uint64(0xFFFFFFFF)).astype(np.int64)] = np.arange(len(groups)) - starts
    return ranks


def _scrambled(state: np.ndarray) -> np.ndarray:
    """One step of SplitMix64 (Steele, Lea and Flood 2014): every input bit changes about half of the output bits."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))
