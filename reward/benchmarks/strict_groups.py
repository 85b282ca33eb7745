"""Multi-way preference: a group of K candidates counts only when all of its pairs are right (EditReward, section 2.3)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def all_right(correct: np.ndarray, group: Sequence[str]) -> dict[str, bool]:
    """From [comparison] to groups in the order of first occurrence: whether every comparison of the group is right."""
    found: dict[str, bool] = {}
    for name, right in zip(group, correct.tolist(), strict=True):
        found[name] = found.get(name, True) and bool(right)
    return found


def chance(candidates: int) -> dict[str, float]:
    """What guessing reaches on a group with a strict order. A scorer is transitive: it draws one of K! orders. A judge of pairs is not."""
    return {"scorer": 1 / math.factorial(candidates), "judge of pairs": 0.5 ** math.comb(candidates, 2)}
