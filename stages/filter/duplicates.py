"""Edits that occur twice: the first one by position counts, later ones are set aside.

Copies have the same source bytes, instruction and edited bytes, and so the same ``sample_id``, by which everything behind the filter names
an edit. Whether a row is a copy depends on the rows of all units, so the driver decides it, from the table ``inspected``, before anything
is scored; the result depends neither on the number of workers nor on the order in which units end.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.engine.contracts import Quarantined

REASON = "duplicate"


def later_ones(ids: pa.ChunkedArray) -> np.ndarray:
    """Which values occurred before, bool [n]."""
    encoded = ids.combine_chunks().dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)  # numbered in the order of first occurrence
    highest_before = np.concatenate([np.array([-1]), np.maximum.accumulate(codes)])[: len(codes)]
    return codes <= highest_before


def find(inspected: pa.Table) -> tuple[list[Quarantined], np.ndarray]:
    """The later copies as rows of the quarantine, and which rows of the table they are, bool [n]."""
    later = later_ones(inspected["sample_id"])
    copied = pc.is_in(inspected["sample_id"], value_set=inspected["sample_id"].filter(pa.array(later)).combine_chunks())
    first: dict[str, str] = {}
    for row in inspected.filter(copied).select(["sample_id", "position"]).to_pylist():
        first.setdefault(row["sample_id"], row["position"])
    message = "source, instruction and edited image are those of"
    copies = [
        Quarantined(row["row_id"], row["position"], REASON, f"{message} {first[row['sample_id']]}")
        for row in inspected.filter(pa.array(later)).select(["sample_id", "row_id", "position"]).to_pylist()
    ]
    return copies, later
