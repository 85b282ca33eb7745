"""Which pairs are in the batch of a step: seeded shuffles, in which pairs of one size come together.

Every shuffle has every pair once. It is cut into windows of WINDOW batches. Inside a window pairs are sorted by bucket and cut into
batches, whose order is drawn. So a batch is of one bucket but for those at the border of two, and a bucket of one pair needs no rule of its
own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import torch

from reward.trainer.order import batch_order, derived_seed, epoch_shuffles

WINDOW = 64
"""Batches in which pairs are sorted by size."""


def bucketed_order(bucket_of: np.ndarray, batch: int, seed: int) -> Callable[[int], list[int]]:
    """The numbers of a batch's pairs as a function of the step. bucket_of: number of every pair's bucket, int [n]."""
    drawn = batch_order(len(bucket_of), WINDOW * batch, epoch_shuffles(seed))

    @lru_cache(maxsize=2)
    def window(number: int) -> np.ndarray:
        members = np.asarray(drawn(number))
        batches = members[np.argsort(bucket_of[members], kind="stable")].reshape(WINDOW, batch)
        generator = torch.Generator().manual_seed(derived_seed(seed, "window", number))
        return batches[torch.randperm(WINDOW, generator=generator).numpy()]

    return lambda step: window(step // WINDOW)[step % WINDOW].tolist()
