"""The queue of adjudication: a table of disputed cells that a further expert fills in and ingest reads.

It holds the scores that were given, lowest first and without names. The adjudicator gives ``annotator_id`` and ``score``, and must not have
rated the group.
"""

from __future__ import annotations

from collections.abc import Sequence

from stages.ratings import packet
from stages.ratings.csv_table import csv_table
from stages.ratings.manifest import Manifest
from stages.ratings.reannotation import Disputed
from stages.ratings.rounds import ADJUDICATION

COLUMNS = (*packet.TEMPLATE, "scores_given")


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
            "scores_given": " ".join(f"{score:g}" for score in cell.scores),
        }
        for cell in disputed
    ]
    return csv_table(rows, COLUMNS)
