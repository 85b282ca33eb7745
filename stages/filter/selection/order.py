"""Orders that do not depend on the order of the rows: ids as bytes, numbers drawn by id, sorting with ties broken by id."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.engine.ids import ID_DIGITS, content_id
from stages.engine.tables import Tables

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


def drawn(database: Tables, purpose: str, seed: int) -> str:
    """The number that :func:`hashed` draws for ``sample_id``, as an expression in SQL."""
    name = f"drawn_for_{purpose}"
    database.define(name, lambda ids: pa.array(hashed(fixed_width(ids), purpose, seed)), "VARCHAR", "DOUBLE")
    return f"{name}(sample_id)"


def ranked(key: np.ndarray, ids: pa.ChunkedArray) -> np.ndarray:
    """Indices that sort by ``key`` float64 [n], smallest first, and equal keys by their ids."""
    return pc.sort_indices(pa.table({"key": key, "id": ids}), SORT_KEYS).to_numpy()


def first(key: np.ndarray, ids: pa.ChunkedArray, count: int) -> np.ndarray:
    """The first ``count`` of them."""
    return pc.select_k_unstable(pa.table({"key": key, "id": ids}), count, SORT_KEYS).to_numpy()


def _scrambled(state: np.ndarray) -> np.ndarray:
    """One step of SplitMix64 (Steele, Lea and Flood 2014): every input bit changes about half of the output bits."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))
