"""Precision at k: the share of good edits among the k with the best scores, by ground-truth quality or by human ratings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pipeline.report import scored_edits
from pipeline.report.published import Published
from reward.evaluation.estimate import Estimate
from stages.annotate.ratings.ledger import scores_only
from stages.filter.selection.difference import Z
from stages.filter.selection.order import ranked

SMALLEST = 12
"""The smallest k, which is the number of edits in a gallery; each further one is about twice as large."""
GOOD = 3.0
"""Mean rating from which an edit is good in a dimension (paper A.2: 3 is good, 4 very good)."""


@dataclass(frozen=True)
class Judged:
    """Scored edits [n] of which it is known whether they are good: ``score`` and ``change`` (from the source) float64, ``good`` bool,
    ``source`` any. ``standard``: what makes an edit good, in words. ``edits``: which edits these are.
    """

    ids: pa.ChunkedArray
    score: np.ndarray
    change: np.ndarray
    good: np.ndarray
    source: np.ndarray
    standard: str
    edits: str

    def best(self) -> np.ndarray:
        """Indices, best score first."""
        return ranked(-self.score, self.ids)

    def closest(self) -> np.ndarray:
        """Indices, least change from the source first: an order that knows neither instruction nor ratings."""
        return ranked(self.change, self.ids)

    def precision(self, order: np.ndarray, k: int) -> Estimate:
        """Share of good edits among the first k of an order, with a Wilson 95 % interval in which each source counts once."""
        first = order[:k]
        return wilson(float(self.good[first].mean()), len(np.unique(self.source[first])))


def wilson(share: float, count: int) -> Estimate:
    """A share with its 95 % score interval (Wilson 1927), which is sound near 0 and 1. ``count``: independent observations."""
    center, scale = share + Z**2 / (2 * count), 1 + Z**2 / count
    half = Z * math.sqrt(share * (1 - share) / count + Z**2 / (4 * count**2))
    return Estimate(share, max((center - half) / scale, 0.0), min((center + half) / scale, 1.0), count)


def judged(published: Published) -> Judged | None:
    """The edits of the filter where their ground truth is known, else the held-out candidates that people rated; None without either."""
    edits = scored_edits.read(published)
    if edits is not None and edits.good is not None:
        table = edits.table
        return Judged(
            table["sample_id"],
            edits.overall,
            table["change_from_source"].to_numpy(),
            edits.good,
            edits.source,
            "good in every dimension by ground-truth quality, which the filter does not read",
            "scored edits",
        )
    return _rated(published)


def steps(count: int, also: Sequence[int] = ()) -> list[int]:
    """Values of k below ``count``: ``SMALLEST``, 25, 50, 100, 200, ..., and those ``also`` asked for."""
    doubling = [SMALLEST, *(25 * 2**power for power in range(max(count, 1).bit_length()))]
    return sorted({k for k in [*doubling, *also] if 0 < k < count})


def _rated(published: Published) -> Judged | None:
    table = published.table("evaluate-reward", "scores", ["sample_id", "overall_mean", "change_from_source"])
    ratings = published.ratings(where=("candidate_id", table["sample_id"].to_pylist())) if table is not None else None
    if table is None or ratings is None:
        return None
    given: dict[str, dict[str, list[float]]] = {}
    sources: dict[str, str] = {}
    for row in scores_only(ratings).select(["candidate_id", "source_id", "dimension", "score"]).to_pylist():
        given.setdefault(row["candidate_id"], {}).setdefault(row["dimension"], []).append(row["score"])
        sources[row["candidate_id"]] = row["source_id"]
    names = {dimension for scores in given.values() for dimension in scores}
    rated = {name: scores for name, scores in given.items() if set(scores) == names}
    kept = table.filter([name in rated for name in table["sample_id"].to_pylist()])
    if not kept.num_rows:
        return None
    ids = kept["sample_id"].to_pylist()
    return Judged(
        kept["sample_id"],
        kept["overall_mean"].to_numpy(),
        kept["change_from_source"].to_numpy(),
        np.array([min(float(np.mean(scores)) for scores in rated[name].values()) >= GOOD for name in ids]),
        np.array([sources[name] for name in ids]),
        f"rated {GOOD:g} or more in every dimension, in the mean over their raters",
        "rated candidates of held-out sources",
    )
