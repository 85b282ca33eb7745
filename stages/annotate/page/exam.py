"""Comparison of a person's scores with gold: results of exams and feedback of training.

In: scores by (group, candidate, dimension) and the gold of the plan. Out: values per dimension, computed by
:mod:`stages.annotate.ratings.gold` as in quality control.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from stages.annotate.config import ExamRules
from stages.annotate.packet.plan import GoldCells
from stages.annotate.ratings.gold import Gold, GoldAccuracy, gold_accuracy

Scores = Mapping[tuple[str, str, str], float]
"""Score by group, candidate and dimension."""


def compare(scores: Scores, gold: Gold, dimensions: Sequence[str], levels: Sequence[float]) -> dict[str, GoldAccuracy | None]:
    """Accuracy per dimension on the scored gold cells; None if there are none."""
    rows = [
        {"source_id": group, "candidate_id": candidate, "dimension": dimension, "annotator": "", "round": "exam", "score": float(score)}
        for (group, candidate, dimension), score in scores.items()
    ]
    found = gold_accuracy(pa.Table.from_pylist(rows), gold, (), [float(level) for level in levels]) if rows else {}
    return {dimension: found.get(("", dimension)) for dimension in dimensions}


def passed(results: Mapping[str, GoldAccuracy | None], rules: ExamRules) -> bool:
    """Whether every dimension meets the thresholds. Without variation kappa is undefined and the exam is not passed."""
    return all(result is not None and result.passes(rules) for result in results.values())


def feedback(scores: Scores, gold: GoldCells, group: str, dimensions: Sequence[str]) -> list[dict[str, Any]]:
    """Per gold cell of a training group: the given score, the experts' scores, whether one of them agrees, their comments."""
    return [
        {
            "candidate_id": candidate,
            "dimension": dimension,
            "given": scores.get((group, candidate, dimension)),
            "accepted": [int(score) if score == round(score) else score for score in cells[dimension].accepted],
            "agrees": scores.get((group, candidate, dimension)) in cells[dimension].accepted,
            "reasons": list(cells[dimension].reasons),
        }
        for candidate, cells in gold.items()
        for dimension in dimensions
        if dimension in cells
    ]
