"""What gold says about somebody's scores on the page: the verdict of an exam and the feedback of training.

In: scores by (group, candidate, dimension) and the gold of the plan. Out: plain values per dimension. The figures are those of
:mod:`stages.annotate.ratings.gold`, which quality control has too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from stages.annotate.packet.plan import GoldCells
from stages.annotate.quality.config import ExamRules
from stages.annotate.ratings.gold import Gold, OnGold, on_gold

Scores = Mapping[tuple[str, str, str], int]
"""Score by group, candidate and dimension."""


def compare(scores: Scores, gold: Gold, dimensions: Sequence[str], levels: Sequence[int]) -> dict[str, OnGold | None]:
    """Results per dimension on the gold cells that were scored; None without any."""
    rows = [
        {"source_id": group, "candidate_id": candidate, "dimension": dimension, "annotator": "", "round": "exam", "score": float(score)}
        for (group, candidate, dimension), score in scores.items()
    ]
    found = on_gold(pa.Table.from_pylist(rows), gold, (), [float(level) for level in levels]) if rows else {}
    return {dimension: found.get(("", dimension)) for dimension in dimensions}


def passed(figures: Mapping[str, OnGold | None], rules: ExamRules) -> bool:
    """Whether every dimension meets the thresholds; without variation there is no kappa, and no pass."""
    return all(result is not None and result.passes(rules) for result in figures.values())


def feedback(scores: Scores, gold: GoldCells, group: str, dimensions: Sequence[str]) -> list[dict[str, Any]]:
    """Per gold cell of a training group: what was given, what the experts gave, whether one of them agrees, and their words."""
    return [
        {
            "candidate_id": candidate,
            "dimension": dimension,
            "given": scores.get((group, candidate, dimension)),
            "accepted": [round(score) for score in cells[dimension].accepted],
            "agrees": scores.get((group, candidate, dimension)) in cells[dimension].accepted,
            "reasons": list(cells[dimension].reasons),
        }
        for candidate, cells in gold.items()
        for dimension in dimensions
        if dimension in cells
    ]
