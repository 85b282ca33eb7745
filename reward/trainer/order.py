"""Randomness that a step derives from the seed and its number, so that a resumed run repeats it: seeds and orders of samples."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache

import torch


def derived_seed(*parts: int | str) -> int:
    """A 63-bit seed from a tuple of numbers and names."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "big") >> 1


def epoch_shuffles(seed: int) -> Callable[[int], torch.Generator]:
    """Return a function from the epoch to a random generator, for `batch_order`."""
    return lambda epoch: torch.Generator().manual_seed(derived_seed(seed, "order", epoch))


def batch_order(count: int, batch: int, generator: Callable[[int], torch.Generator]) -> Callable[[int], list[int]]:
    """Which of `count` items are in the batch of a step, as a function of the step: slices of one shuffle after another.

    generator(epoch): the randomness of that epoch's shuffle.
    """

    @lru_cache(maxsize=2)
    def shuffle(epoch: int) -> list[int]:
        return torch.randperm(count, generator=generator(epoch)).tolist()

    return lambda step: [shuffle(index // count)[index % count] for index in range(step * batch, (step + 1) * batch)]
