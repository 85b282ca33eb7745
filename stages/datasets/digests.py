"""Names as digests of 8 bytes, so that a plan can look for a name among millions without holding them.

Some two among ten million names have the same digest with a probability of 3 in a million.
"""

from __future__ import annotations

import hashlib
from array import array

import numpy as np


def digest(name: str) -> int:
    """The first 8 bytes of a name's hash, as a number."""
    return int.from_bytes(hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest(), "big")


def repeated(*digests: array[int]) -> np.ndarray:
    """Digests that occur more than once in all lists together, sorted, uint64 [n]."""
    ordered = np.sort(np.concatenate([np.frombuffer(part, dtype=np.uint64) for part in digests]))
    return np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
