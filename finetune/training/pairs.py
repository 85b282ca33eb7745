"""Encoded pairs where they are stored: what training reads, one at a time."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from finetune.editing_model import Condition
from finetune.precompute.entry import EncodedPair


class Bucket(NamedTuple):
    """Sizes of latents: pairs of one bucket can be computed together."""

    target_rows: int
    target_columns: int
    reference_rows: int
    reference_columns: int


class StoredPairs(Protocol):
    """Pairs by number. Only their sizes are in memory; the rest is read when it is needed."""

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """The different sizes."""
        ...

    @property
    def bucket_of(self) -> np.ndarray:
        """Number of every pair's bucket, int [n]."""
        ...

    @property
    def identity(self) -> str:
        """Hash of which pairs these are, and of their order."""
        ...

    def read(self, number: int) -> EncodedPair:
        """A pair. Raises ValueError naming the file when it is not what was written."""
        ...

    def read_null(self, number: int) -> Condition:
        """The null condition of a pair's source. Raises ValueError as `read`."""
        ...
