"""Rank correlation of scores with human ratings, editor by editor, and the three ways of averaging it.

Published tables average Spearman's rho of the editors as tanh(mean rho) and call it a Fisher average (VIEScore, arXiv 2312.14867, and
those after it). Fisher's average is tanh(mean artanh rho). The plain mean needs no name. All three stand side by side here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

DIGITS = 9
"""Values are rounded before they are ranked: sums of ratings in another order differ in the last bit and would not be ties."""
LARGEST = 1 - 1e-9
"""|rho| in Fisher's average is cut here: a single correlation of 1 would otherwise be the average."""


def spearman(predicted: np.ndarray, human: np.ndarray) -> float:
    """Spearman's rho of [item] values, ties by average rank; NaN where the human values are all equal.

    A prediction that is NaN gets the median prediction: it says nothing about its item and pulls rho towards 0, where leaving it out would
    flatter. Predictions that are all equal order nothing: 0.
    """
    known = ~np.isnan(predicted)
    if not known.any():
        predicted = np.zeros(len(predicted))
    filled = np.where(np.isnan(predicted), np.median(predicted[~np.isnan(predicted)]), predicted)
    x, y = (rankdata(np.round(values, DIGITS)) for values in (filled, human))
    x, y = x - x.mean(), y - y.mean()
    if not y.any():
        return math.nan
    return float(x @ y / math.sqrt((x @ x) * (y @ y))) if x.any() else 0.0


@dataclass(frozen=True)
class Averages:
    """The same correlations averaged in three ways."""

    mean: float
    fisher: float
    tanh_of_mean: float


def averages(correlations: Sequence[float]) -> Averages:
    """Averages of the correlations that are defined; NaN where none is."""
    defined = np.array([value for value in correlations if not math.isnan(value)])
    if not len(defined):
        return Averages(math.nan, math.nan, math.nan)
    mean = float(defined.mean())
    fisher = float(np.tanh(np.arctanh(np.clip(defined, -LARGEST, LARGEST)).mean()))
    return Averages(mean, fisher, math.tanh(mean))
