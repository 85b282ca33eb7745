"""Adjudication: a further person settles single cells on which the raters of a group are apart, knowing what they gave.

Out: the queue, a table of disputed cells that ingest reads once it is filled in; it holds the scores that were given, lowest first and
without names. In: from ratings of round adjudication the score of a settled cell. The adjudicator must not have rated the group.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from stages.annotate.packet import write as packet
from stages.annotate.ratings.csv_table import csv_table
from stages.annotate.ratings.delivery import SCORES_GIVEN
from stages.annotate.ratings.groups import cells
from stages.annotate.ratings.manifest import Manifest
from stages.annotate.ratings.rounds import ADJUDICATION

COLUMNS = (*packet.TEMPLATE, SCORES_GIVEN)

Adjudications = Mapping[tuple[str, str], Mapping[str, float]]
"""By (candidate, dimension) what each adjudicator gave."""


@dataclass(frozen=True)
class Disputed:
    """A cell for an adjudicator. scores: what was given, lowest first."""

    group_id: str
    candidate_id: str
    dimension: str
    scores: tuple[float, ...]


def queue(disputed: Sequence[Disputed], work: Manifest) -> bytes:
    """CSV in the canonical long format, round adjudication, with a column ``scores_given`` that ingest does not read."""
    rows = [
        {
            "group_id": cell.group_id,
            "candidate_id": cell.candidate_id,
            "dimension": cell.dimension,
            "round": ADJUDICATION,
            "rubric_version": work.rubric_version,
            "project": work.project,
            SCORES_GIVEN: " ".join(f"{score:g}" for score in cell.scores),
        }
        for cell in disputed
    ]
    return csv_table(rows, COLUMNS)


def adjudications(ratings: pa.Table) -> Adjudications:
    """All ratings of round adjudication."""
    found: defaultdict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for (candidate, dimension, annotator, round), score in cells(ratings).items():
        if round == ADJUDICATION:
            found[candidate, dimension][annotator] = score
    return found


def settled(given: Adjudications, candidate: str, dimension: str, raters: Collection[str]) -> float | None:
    """The score of a cell by adjudicators who are no ``raters`` of its group; None where there is none, or several."""
    scores = {score for name, score in given.get((candidate, dimension), {}).items() if name not in raters}
    return scores.pop() if len(scores) == 1 else None
