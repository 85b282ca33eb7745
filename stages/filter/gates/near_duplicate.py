"""Gate: almost the same edit with the same words occurs earlier. Exact copies are quarantined in any case (stages/filter/inspection.py).

The perceptual hashes of source, edited image and of their difference must all be near. The difference counts because two edits of one
photograph share nearly all of it. Value: the largest of the three distances in bits, to the earlier edit for which it is smallest; NaN
where no earlier edit has the instruction.

Earlier means before it in the data set. Every edit is compared with all earlier ones, also with those that are caught themselves, so the
value does not depend on the threshold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from stages.filter.gates.gate import Finding, Gate, GateConfig

if TYPE_CHECKING:
    import pyarrow as pa

HASHES = ("source_phash", "edited_phash", "change_phash")
BLOCK = 2048
"""Edits compared at a time: bounds memory at BLOCK x n values."""


class NearDuplicateGate(GateConfig):
    """Almost the same edit with the same words, earlier in the data set."""

    bits: int = Field(4, ge=0, le=64, description="Bits by which each of three perceptual hashes may differ")


def decide(inspected: pa.Table, config: NearDuplicateGate) -> Finding:
    """Same words and near hashes. Time grows with the square of how often one instruction occurs."""
    import numpy as np

    hashes = [inspected[name].to_numpy() for name in HASHES]
    codes = inspected["instruction"].combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    nearest = np.full(len(codes), np.nan)
    order = np.argsort(codes, kind="stable")  # brings rows of one instruction together and keeps their order
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    ends = np.append(starts[1:], len(codes))
    several = ends - starts > 1
    for start, end in zip(starts[several], ends[several], strict=True):
        rows = order[start:end]  # rows of one instruction, in the order of the data set
        for first in range(0, len(rows), BLOCK):
            block = rows[first : first + BLOCK]
            before = rows[: first + len(block)]
            bits = np.zeros((len(block), len(before)), dtype=np.uint8)  # largest of the three distances of every pair
            for column in hashes:
                np.maximum(bits, np.bitwise_count(column[block][:, None] ^ column[before][None]), out=bits)
            bits[np.arange(len(before))[None] >= first + np.arange(len(block))[:, None]] = 255  # itself and later ones
            found = bits.min(axis=1, initial=255).astype(np.float64)
            nearest[block] = np.where(found == 255, np.nan, found)
    return Finding(nearest, nearest <= config.bits, config.bits)


GATE = Gate(
    config=NearDuplicateGate,
    description="Almost the same edit again, by perceptual hashes",
    caption="nearly the same edit before, bits",
    compares=True,
    decide=decide,
)
