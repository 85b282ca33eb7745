"""Counter-based randomness: every number is a function of a key of numbers and names, never of the order of calls."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

Key = int | str
T = TypeVar("T")


def digest(*key: Key) -> int:
    """128-bit hash of a key; 1 and "1" differ."""
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=16).digest(), "little")


def generator(*key: Key) -> np.random.Generator:
    """The random stream of a key."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(digest(*key))))


def uniform(*key: Key) -> float:
    """One number in (0, 1) for a key, cheaper than a stream."""
    return ((digest(*key) >> 75) + 0.5) / 2**53


def pick(rng: np.random.Generator, choices: Sequence[T]) -> T:
    """One of the choices, each equally likely."""
    return choices[int(rng.random() * len(choices))]


def pick_level(rng: np.random.Generator, probabilities: Sequence[float]) -> int:
    """A level 1..4 drawn from its four probabilities."""
    draw = rng.random() * sum(probabilities)
    for level, probability in enumerate(probabilities, start=1):
        draw -= probability
        if draw < 0:
            return level
    return len(probabilities)
