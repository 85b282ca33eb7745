"""Selections: rules that read scores only, so that one scoring serves many of them.

In: a table of the ``scores`` contract. Out: a table of the ``selection`` contract, best first. The same scores in any order give the same
selection: ties are broken by sample id, and the random rule draws by a hash of seed and id. Everything is vectorised.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.config import SelectionConfig
from stages.contracts import SELECTION
from stages.ids import ID_DIGITS, content_id

COLUMNS = ["sample_id", "overall_mean", "change_from_source"]
"""All that a selection reads."""
WHOLE = "all"
"""The only stratum so far: every sample competes with every other."""


def select(scores: pa.Table, config: SelectionConfig) -> pa.Table:
    """The selected samples with their rank (0 is first) and the value that the rule ordered them by, as ``score``.

    Raises ``ValueError`` when there are fewer scores than the rule is to keep, or when it would keep none.
    """
    count = size(scores.num_rows, config)
    ids = fixed_width(scores["sample_id"])
    value, ascending = RULES[config.rule](scores, ids, config.seed)
    assert np.isfinite(value).all(), "scores are finite"
    chosen = _first(value if ascending else -value, ids, count)
    columns = {
        "sample_id": pc.cast(pa.array(ids[chosen]), pa.string()),
        "rank": np.arange(count),
        "stratum": pa.repeat(WHOLE, count),
        "score": value[chosen],
        "rule": pa.repeat(config.rule, count),
    }
    return pa.table(columns).cast(SELECTION)


def size(available: int, config: SelectionConfig) -> int:
    """How many samples the rule keeps; a fraction is of what is available, rounded half up."""
    if not available:
        raise ValueError(f"selection {config.name}: there are no scored edits to select from")
    if config.count is not None:
        if config.count > available:
            raise ValueError(f"selection {config.name}: count {config.count:,} is more than the {available:,} scored edits; lower it")
        return config.count
    count = math.floor(Decimal(repr(config.fraction or 1.0)) * available + Decimal("0.5"))
    if not count:
        raise ValueError(f"selection {config.name}: fraction {config.fraction} of {available:,} scored edits keeps none; raise it")
    return count


def hashed(ids: np.ndarray, purpose: str, seed: int) -> np.ndarray:
    """A number in [0, 1) per id (bytes [n] of an id's width), drawn by ``purpose``, ``seed`` and the id alone: float64 [n]."""
    words = np.ascontiguousarray(ids).view("<u8").reshape(len(ids), ID_DIGITS // 8)
    state = np.full(len(ids), int(content_id("hashed", purpose, seed)[:16], 16), np.uint64)
    for column in range(words.shape[1]):
        state = _scrambled(state ^ words[:, column])
    return (state >> np.uint64(11)).astype(np.float64) / 2.0**53


def fixed_width(ids: pa.ChunkedArray) -> np.ndarray:
    """Ids as bytes [n] of one width, which compare as the ids do."""
    chunks = [pc.cast(pc.cast(chunk, pa.binary()), pa.binary(ID_DIGITS)) for chunk in ids.chunks]
    data = [np.frombuffer(chunk.buffers()[1], f"S{ID_DIGITS}", len(chunk), chunk.offset * ID_DIGITS) for chunk in chunks if len(chunk)]
    return np.concatenate(data) if data else np.empty(0, f"S{ID_DIGITS}")


def _scrambled(state: np.ndarray) -> np.ndarray:
    """One step of SplitMix64 (Steele, Lea and Flood 2014): every input bit changes about half of the output bits."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def _first(key: np.ndarray, ids: np.ndarray, count: int) -> np.ndarray:
    """Indices of the ``count`` smallest keys, in order; equal keys in the order of their ids."""
    last = np.partition(key, count - 1)[count - 1]
    candidates = np.flatnonzero(key <= last)
    order = np.lexsort((ids[candidates], key[candidates]))
    return candidates[order[:count]]


def _overall(scores: pa.Table, ids: np.ndarray, seed: int) -> tuple[np.ndarray, bool]:
    return scores["overall_mean"].to_numpy(), False


def _closest(scores: pa.Table, ids: np.ndarray, seed: int) -> tuple[np.ndarray, bool]:
    return scores["change_from_source"].to_numpy(), True


def _random(scores: pa.Table, ids: np.ndarray, seed: int) -> tuple[np.ndarray, bool]:
    return hashed(ids, "selection", seed), True


RULES: dict[str, Callable[[pa.Table, np.ndarray, int], tuple[np.ndarray, bool]]] = {
    "top": _overall,
    "random": _random,
    "closest-to-source": _closest,
    "all": _overall,
}
"""Per rule the value that it orders by, float64 [n], and whether small ones come first."""
