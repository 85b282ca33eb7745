"""What gold says about somebody's scores: the verdict of an exam, the feedback of training, the hidden gold of production.

In: scores by (group, candidate, dimension) and the gold cells of the plan. Out: plain values per dimension. ``exact``: share of the
scores that one of the experts gave too; ``within_one``: share at most one level from one that an expert gave; ``severity``: mean difference
from the experts' mean, positive for a lenient person; ``kappa``: quadratic weights, against the experts' most frequent score (J. Cohen,
Weighted kappa, Psychological Bulletin 70, 1968). Cells on which the experts differed are no gold and count nowhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from stages.ratings.agreement import weighted_kappa
from stages.ratings.plan import GoldCells
from stages.ratings.quality_config import ExamRules

Scores = Mapping[tuple[str, str, str], int]
"""Score by group, candidate and dimension."""


def compare(
    scores: Scores, gold: Mapping[str, GoldCells], groups: Iterable[str], dimensions: Sequence[str], levels: Sequence[int]
) -> dict[str, dict[str, Any]]:
    """The four figures per dimension over the gold cells of ``groups`` that were scored, and their number ``n``; None without any."""
    groups = list(groups)
    found = {}
    for dimension in dimensions:
        cells = [
            (scores[group, candidate, dimension], of[dimension])
            for group in groups
            for candidate, of in gold[group].items()
            if dimension in of and (group, candidate, dimension) in scores
        ]
        if not cells:
            found[dimension] = {"n": 0, "kappa": None, "exact": None, "within_one": None, "severity": None}
            continue
        table = np.zeros((1, len(levels), len(levels)))
        for score, cell in cells:
            table[0, levels.index(score), levels.index(round(cell.score))] += 1
        steps = np.subtract.outer(np.arange(len(levels)), np.arange(len(levels))) ** 2
        kappa = float(weighted_kappa(table, steps)[0])
        away = [min(abs(score - accepted) for accepted in cell.accepted) for score, cell in cells]
        found[dimension] = {
            "n": len(cells),
            "kappa": None if np.isnan(kappa) else round(kappa, 4),
            "exact": round(sum(distance == 0 for distance in away) / len(cells), 4),
            "within_one": round(sum(distance <= 1 for distance in away) / len(cells), 4),
            "severity": round(sum(score - cell.mean for score, cell in cells) / len(cells), 4),
        }
    return found


def passed(figures: Mapping[str, Mapping[str, Any]], rules: ExamRules) -> bool:
    """Whether every dimension meets the thresholds; without variation there is no kappa, and no pass."""
    return all(
        entry["kappa"] is not None
        and entry["kappa"] >= rules.kappa
        and entry["exact"] >= rules.exact
        and entry["within_one"] >= rules.within_one
        and abs(entry["severity"]) <= rules.severity
        for entry in figures.values()
    )


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
