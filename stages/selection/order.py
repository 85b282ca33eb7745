"""Orders that do not depend on where a row stands: ids as bytes, numbers drawn by id, sorting with ties broken by id."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.ids import ID_DIGITS, content_id

WORD = 8
"""Digits of an id that are compared at once, as one integer."""


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


def ranked(key: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Indices that sort by ``key`` float64 [n], smallest first, and equal keys by their ids.

    Sorting whole ids is several times slower than sorting their first digits, which rarely leave a tie.
    """
    words = np.ascontiguousarray(ids).view(f">u{WORD}").reshape(len(ids), -1)
    first = words[:, 0].astype(np.uint64)  # in the machine's byte order, which sorts faster
    order = np.lexsort((first, key))
    same = (key[order[1:]] == key[order[:-1]]) & (first[order[1:]] == first[order[:-1]])
    if same.any():
        tied = np.zeros(len(order), bool)
        tied[1:] |= same
        tied[:-1] |= same
        places = np.flatnonzero(tied)
        rows = order[places]
        order[places] = rows[np.lexsort((ids[rows], key[rows]))]
    return order


def first(key: np.ndarray, ids: np.ndarray, count: int) -> np.ndarray:
    """Indices of the ``count`` smallest keys, in order; equal keys in the order of their ids."""
    if count < len(key):
        candidates = np.flatnonzero(key <= np.partition(key, count - 1)[count - 1])
        return candidates[ranked(key[candidates], ids[candidates])[:count]]
    return ranked(key, ids)


def rank_within(groups: np.ndarray) -> np.ndarray:
    """How many entries of the same group come before each entry: int64 [n] for ``groups`` int [n]."""
    by_group = np.argsort(groups, kind="stable")
    sizes = np.bincount(groups)
    starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
    ranks = np.empty(len(groups), np.int64)
    ranks[by_group] = np.arange(len(groups)) - starts
    return ranks


def _scrambled(state: np.ndarray) -> np.ndarray:
    """One step of SplitMix64 (Steele, Lea and Flood 2014): every input bit changes about half of the output bits."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))
