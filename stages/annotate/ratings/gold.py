"""Gold cells, and the accuracy of annotators on them.

A cell is a candidate in a dimension. It is gold when enough experts rated it and their scores are at most one level apart. Every score
that an expert gave is then accepted, so the tolerance of a cell comes from the data. In: ratings, the names of the experts, how many
experts a gold cell needs. Out: gold cells, and per annotator and dimension the accuracy on them.
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
from stages.annotate.config import ExamRules
from stages.annotate.ratings.rating_task import ADJUDICATION, RANKING, level_width

Gold = Mapping[tuple[str, str], tuple[float, ...]]
"""Expert scores by (candidate, dimension), one per expert, lowest first."""


@dataclass(frozen=True)
class GoldAccuracy:
    """Accuracy of an annotator on gold in one dimension. cells: scores compared; severity: mean levels above the experts' mean."""

    groups: int
    cells: int
    exact: float
    within_one: float
    severity: float
    kappa: float | None

    def passes(self, rules: ExamRules) -> bool:
        """Whether these results pass the exam."""
        return (
            self.kappa is not None
            and self.kappa >= rules.kappa
            and self.exact >= rules.exact
            and self.within_one >= rules.within_one
            and abs(self.severity) <= rules.severity
        )


def nearest_level(score: float, levels: Sequence[float]) -> int:
    """Index of the level nearest to the experts' mean, the lower one of two; kappa compares with it."""
    return int(np.abs(np.asarray(levels) - score).argmin())


def gold_cells(ratings: pa.Table, experts: Collection[str], least: int, levels: Sequence[float]) -> Gold:
    """Gold from the experts' ratings, without rankings and without adjudications (an adjudicator has seen the other scores)."""
    given: defaultdict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for row in _rows(ratings, ("candidate_id", "dimension", "annotator", "round", "score")):
        candidate, dimension, annotator, round, score = row
        if annotator in experts and round not in (ADJUDICATION, RANKING):
            given[candidate, dimension][annotator] = score
    step = level_width(levels)
    cells = {cell: tuple(sorted(scores.values())) for cell, scores in given.items() if len(scores) >= least}
    return {cell: scores for cell, scores in cells.items() if scores[-1] - scores[0] <= step + 1e-9}


def gold_accuracy(ratings: pa.Table, gold: Gold, experts: Collection[str], levels: Sequence[float]) -> dict[tuple[str, str], GoldAccuracy]:
    """Accuracy by (annotator, dimension) of everybody but the experts who rated gold."""
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


def _result(rows: Sequence[tuple[str, float, float, float]], levels: Sequence[float]) -> GoldAccuracy:
    groups = len({row[0] for row in rows})
    score, middle, off = (np.array([row[i] for row in rows]) for i in (1, 2, 3))
    own = np.searchsorted(levels, score)
    table = np.zeros((1, len(levels), len(levels)))
    np.add.at(table[0], (own, np.array([nearest_level(value, levels) for value in middle])), 1)
    kappa = weighted_kappa(table, np.subtract.outer(np.arange(len(levels)), np.arange(len(levels))) ** 2)[0]
    return GoldAccuracy(
        groups=groups,
        cells=len(rows),
        exact=round(float((off < 1e-9).mean()), DIGITS),
        within_one=round(float((off <= 1 + 1e-9).mean()), DIGITS),
        severity=round(float((score - middle).mean() / level_width(levels)), DIGITS),
        kappa=None if np.isnan(kappa) else round(float(kappa), DIGITS),
    )


def _rows(ratings: pa.Table, columns: Sequence[str]) -> Any:
    return zip(*(ratings[name].to_pylist() for name in columns), strict=True)
