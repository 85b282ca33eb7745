"""What a gate finds on a table of inspected edits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Finding:
    """``values``: what was measured, float64 [n], NaN where the gate does not apply; ``caught``: bool [n]; ``thresholds``: float64 [n]."""

    values: np.ndarray
    caught: np.ndarray
    thresholds: np.ndarray


def above(values: np.ndarray, threshold: float) -> Finding:
    """Caught where the value is above the threshold."""
    return Finding(values, values > threshold, np.full(len(values), float(threshold)))


def below(values: np.ndarray, threshold: float) -> Finding:
    """Caught where the value is below the threshold."""
    return Finding(values, values < threshold, np.full(len(values), float(threshold)))
