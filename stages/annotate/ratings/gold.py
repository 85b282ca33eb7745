"""Gold: cells on which the experts agree, and how an annotator does on them.

In: ratings, the names of the experts, how many of them make a cell gold. A cell is a candidate in a dimension; it is gold when enough
experts rated it and they are at most one level apart. Every level that an expert gave is accepted there: how strict a cell is, is in the
data and not a constant. Out: for every rating of anybody else on a gold cell, whether it is accepted and how far off it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from stages.annotate.agreement.alpha import weighted_kappa
from stages.annotate.agreement.bootstrap import DIGITS
from stages.annotate.quality.config import ExamRules
from stages.annotate.ratings.manifest import level_width
from stages.annotate.ratings.rounds import ADJUDICATION, RANKING

Gold = Mapping[tuple[str, str], tuple[float, ...]]
"""The accepted scores of a (candidate, dimension), lowest first, one per expert."""


@dataclass(frozen=True)
class OnGold:
    """What an annotator did on gold in one dimension. cells: scores compared; severity: mean levels above the experts' mean."""

    groups: int
    cells: int
    exact: float
    within_one: float
    severity: float
    kappa: float | None

    def passes(self, rules: ExamRules) -> bool:
        """Whether an exam with these results is passed."""
        return (
            self.kappa is not None
            and self.kappa >= rules.kappa
            and self.exact >= rules.exact
            and self.within_one >= rules.within_one
            and abs(self.severity) <= rules.severity
        )


def nearest_level(score: float, levels: Sequence[float]) -> int:
    """Place of the level nearest to a mean of experts, the lower of two: what kappa compares with."""
    return int(np.abs(np.asarray(levels) - score).argmin())


def gold_cells(ratings: pa.Table, experts: Collection[str], least: int, levels: Sequence[float]) -> Gold:
    """Gold from the experts' ratings; without adjudications, since an adjudicator has seen the others' scores, and rankings."""
    said: defaultdict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for row in _rows(ratings, ("candidate_id", "dimension", "annotator", "round", "score")):
        candidate, dimension, annotator, round, score = row
        if annotator in experts and round not in (ADJUDICATION, RANKING):
            said[candidate, dimension][annotator] = score
    step = level_width(levels)
    cells = {cell: tuple(sorted(scores.values())) for cell, scores in said.items() if len(scores) >= least}
    return {cell: scores for cell, scores in cells.items() if scores[-1] - scores[0] <= step + 1e-9}


def on_gold(ratings: pa.Table, gold: Gold, experts: Collection[str], levels: Sequence[float]) -> dict[tuple[str, str], OnGold]:
    """Results by (annotator, dimension) of everybody who rated gold and is no expert."""
    if not gold:
        return {}
    step = level_width(levels)
    found: defaultdict[tuple[str, str], list[tuple[str, float, float, float]]] = defaultdict(list)
    for source, candidate, dimension, annotator, round, score in _rows(
        ratings, ("source_id", "candidate_id", "dimension", "annotator", "round", "score")
    ):
        accepted = gold.get((candidate, dimension))
        if accepted is not None and annotator not in experts and round != ADJUDICATION:
            off = min(abs(score - value) for value in accepted) / step
            found[annotator, dimension].append((source, score, float(np.mean(accepted)), off))
    return {key: _result(rows, levels) for key, rows in sorted(found.items())}


def _result(rows: Sequence[tuple[str, float, float, float]], levels: Sequence[float]) -> OnGold:
    groups = len({row[0] for row in rows})
    score, middle, off = (np.array([row[i] for row in rows]) for i in (1, 2, 3))
    own = np.searchsorted(levels, score)
    table = np.zeros((1, len(levels), len(levels)))
    np.add.at(table[0], (own, np.array([nearest_level(value, levels) for value in middle])), 1)
    kappa = weighted_kappa(table, np.subtract.outer(np.arange(len(levels)), np.arange(len(levels))) ** 2)[0]
    return OnGold(
        groups=groups,
        cells=len(rows),
        exact=round(float((off < 1e-9).mean()), DIGITS),
        within_one=round(float((off <= 1 + 1e-9).mean()), DIGITS),
        severity=round(float((score - middle).mean() / level_width(levels)), DIGITS),
        kappa=None if np.isnan(kappa) else round(float(kappa), DIGITS),
    )


def _rows(ratings: pa.Table, columns: Sequence[str]) -> Any:
    return zip(*(ratings[name].to_pylist() for name in columns), strict=True)
