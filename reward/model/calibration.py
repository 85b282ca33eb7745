"""Calibration on held-out ratings: a map from raw scores to the raters' Likert scale, and the margin below which raters call two edits
equal.

The raw zero and unit of a ranking model are free; isotonic regression (pool adjacent violators) finds the non-decreasing map per dimension
with the least squared error. The tie threshold maximises the likelihood of the three outcomes of `reward.model.comparison`. Both travel
with the model as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from pydantic import Field
from scipy.optimize import isotonic_regression, minimize_scalar

from reward.config import Configuration
from reward.model.comparison import outcome_probabilities

FILE = "calibration.json"
LEAST_PROBABILITY = 1e-12
"""Smallest probability in a logarithm: 1 - P(a better) - P(b better) has no digits left below it."""
WIDEST_SIGMAS = 8
"""Sigmas beyond the largest margin at which every pair is surely a tie."""


class MonotoneMap(Configuration):
    """Piecewise linear, non-decreasing; constant outside the knots."""

    raw: tuple[float, ...] = Field(min_length=1, description="increasing raw means")
    likert: tuple[float, ...] = Field(min_length=1, description="Likert scores there")

    def __call__(self, raw: float) -> float:
        """The Likert score of a raw mean."""
        return float(np.interp(raw, self.raw, self.likert))


class Calibration(Configuration):
    """One map per dimension."""

    dimensions: dict[str, MonotoneMap]
    ratings: dict[str, int] = Field(description="ratings that each map was fitted on")
    tie_threshold: float | None = Field(None, ge=0, description="half the margin within which people call two edits equal")


def read_calibration(model: Path) -> Calibration | None:
    """The calibration of a saved model; None where it has none. Raises ValueError for a damaged file."""
    file = model / FILE
    if not file.exists():
        return None
    try:
        return Calibration.model_validate_json(file.read_bytes())
    except ValueError:
        raise ValueError(f"{file} is damaged; restore it, or delete it: then the model gives no Likert scores") from None


def fit_calibration(
    means: Mapping[str, np.ndarray], ratings: Mapping[str, np.ndarray], *, tie_threshold: float | None = None
) -> Calibration:
    """Fit the maps on held-out candidates: dimension -> raw means [candidate], dimension -> ratings [candidate].

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
    counts = {dimension: len(raw) for dimension, raw in means.items()}
    return Calibration(dimensions=maps, ratings=counts, tie_threshold=tie_threshold)


def fit_tie_threshold(margin: np.ndarray, sigma_a: np.ndarray, sigma_b: np.ndarray, label: np.ndarray) -> float:
    """The threshold t >= 0 under which held-out comparisons are most likely, ties among them; to six decimals.

    [pair] each, every pair once: predicted mu_a - mu_b, overall sigmas, and label, P(a better) of 1 or 0, NaN for a tie. The
    log-likelihood is concave in t, so the search finds its one maximum; t is 0 without ties. Raises ValueError for no pairs.
    """
    if len(label) == 0:
        raise ValueError("there are no held-out pairs to fit a tie threshold on; hold out more sources")
    column = outcome_columns(label)
    if not (column == 1).any():
        return 0.0

    def loss(threshold: float) -> float:
        return -float(log_likelihood(outcome_probabilities(margin, sigma_a, sigma_b, threshold=threshold), column).mean())

    widest = float(np.abs(margin).max() + WIDEST_SIGMAS * (1 + np.hypot(sigma_a, sigma_b).max()))
    return round(float(minimize_scalar(loss, bounds=(0.0, widest), method="bounded", options={"xatol": 1e-7}).x), 6)


def outcome_columns(label: np.ndarray) -> np.ndarray:
    """int [pair]: column of `outcome_probabilities` that came true. label: P(a preferred) of 1 or 0, NaN for a tie."""
    return np.where(np.isnan(label), 1, np.where(label > 0.5, 0, 2))


def log_likelihood(probabilities: np.ndarray, column: np.ndarray) -> np.ndarray:
    """[pair]: log of the probability [pair, outcome] that the true outcome was given."""
    return np.log(np.maximum(np.take_along_axis(probabilities, column[:, None], axis=1)[:, 0], LEAST_PROBABILITY))


def _fit(raw: np.ndarray, rated: np.ndarray) -> MonotoneMap:
    knots, inverse, counts = np.unique(raw, return_inverse=True, return_counts=True)
    averages = np.bincount(inverse, weights=rated) / counts
    fitted = isotonic_regression(averages, weights=counts).x
    changes = np.flatnonzero(np.diff(fitted))
    ends = np.unique(np.concatenate([[0], changes, changes + 1, [len(knots) - 1]]))  # ends of the constant blocks
    return MonotoneMap(raw=tuple(knots[ends].tolist()), likert=tuple(fitted[ends].tolist()))
