"""Gate: one source image has many edits in the data set, so that a model trained on it sees that picture too often.

Value: which edit of its source (by the bytes of the image) this is, counted from 1 in the order of the data set; so the first ones are
kept.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from stages.filter.gates.config import SourceReuseGate
from stages.filter.gates.finding import Finding, above


def decide(inspected: pa.Table, config: SourceReuseGate) -> Finding:
    """More edits of one source than allowed."""
    codes = inspected["source_sha256"].combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))  # where the edits of each source begin
    ordinal = np.empty(len(codes), dtype=np.float64)
    ordinal[order] = np.arange(len(codes)) - np.repeat(starts, np.diff(np.append(starts, len(codes)))) + 1
    return above(ordinal, config.edits)
