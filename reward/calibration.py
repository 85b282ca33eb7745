"""From raw means to the Likert scale that people used: a monotone map per dimension, fitted on held-out ratings.

The raw zero and unit of a ranking model are free; isotonic regression (pool adjacent violators) finds the non-decreasing map with the least
squared error. It travels with the model as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from pydantic import BaseModel, ConfigDict, Field
from scipy.optimize import isotonic_regression


class MonotoneMap(BaseModel):
    """Piecewise linear, non-decreasing; constant outside the knots."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    raw: tuple[float, ...] = Field(min_length=1, description="increasing raw means")
    likert: tuple[float, ...] = Field(min_length=1, description="Likert scores there")

    def __call__(self, raw: float) -> float:
        """The Likert score of a raw mean."""
        return float(np.interp(raw, self.raw, self.likert))


class Calibration(BaseModel):
    """One map per dimension."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    dimensions: dict[str, MonotoneMap]
    ratings: dict[str, int] = Field(description="ratings that each map was fitted on")
    tie_threshold: float | None = Field(None, ge=0, description="half the margin within which people call two edits equal")


def fit_calibration(means: Mapping[str, np.ndarray], ratings: Mapping[str, np.ndarray]) -> Calibration:
    """Fit on held-out candidates: dimension -> raw means [candidate], dimension -> ratings [candidate].

    Raises ValueError when a dimension has no ratings or the lengths differ.
    """
    maps = {}
    for dimension, raw in means.items():
        rated = np.asarray(ratings[dimension], dtype=np.float64)
        raw = np.asarray(raw, dtype=np.float64)
        if len(raw) == 0 or raw.shape != rated.shape:
            raise ValueError(
                f"calibration of {dimension} got {len(raw)} means and {len(rated)} ratings; expected one rating per mean, and at least one"
            )
        maps[dimension] = _fit(raw, rated)
    return Calibration(dimensions=maps, ratings={dimension: len(raw) for dimension, raw in means.items()})


def _fit(raw: np.ndarray, rated: np.ndarray) -> MonotoneMap:
    knots, inverse, counts = np.unique(raw, return_inverse=True, return_counts=True)
    averages = np.bincount(inverse, weights=rated) / counts
    fitted = isotonic_regression(averages, weights=counts).x
    changes = np.flatnonzero(np.diff(fitted))
    ends = np.unique(np.concatenate([[0], changes, changes + 1, [len(knots) - 1]]))  # ends of the constant blocks
    return MonotoneMap(raw=tuple(knots[ends].tolist()), likert=tuple(fitted[ends].tolist()))
