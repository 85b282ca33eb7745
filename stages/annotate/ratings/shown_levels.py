"""The levels of a scale that tables and charts show.

A fine scale, such as a slider from 0 to 100, is shown at five levels from the lowest to the highest, as far apart as a level of quality
control; a score counts at the nearest of them, the lower one of two.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

MOST = 11
"""Levels of a scale that is shown as it is: a scale from 0 to 10 is."""

FINE = 5


def shown_levels(levels: Sequence[float]) -> list[float]:
    """Levels to show, lowest first. levels: all of the scale, sorted."""
    return list(levels) if len(levels) <= MOST else np.linspace(levels[0], levels[-1], FINE).tolist()


def nearest(scores: np.ndarray, shown: Sequence[float]) -> np.ndarray:
    """Index of the shown level nearest to each score, of the shape of ``scores``."""
    return np.abs(scores[..., None] - np.array(shown)).argmin(-1)


def summed(table: Sequence[float] | Sequence[Sequence[float]], levels: Sequence[float]) -> np.ndarray:
    """Counts or shares by level of the scale, [levels] or [levels, levels], added up to the shown levels."""
    places = nearest(np.array(levels, np.float64), shown_levels(levels))
    counts = np.asarray(table)
    for axis in range(counts.ndim):
        counts = np.stack([counts.take(np.flatnonzero(places == place), axis).sum(axis) for place in range(places.max() + 1)], axis)
    return counts


def note(levels: Sequence[float]) -> str:
    """What a reader of shown levels must know; empty where all are shown."""
    return "" if len(levels) <= MOST else "Scores are counted at the nearest of five levels."
