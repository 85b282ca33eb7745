"""The queue of adjudication: a table of disputed cells that a further expert fills in and ingest reads.

It holds the scores that were given, lowest first and without names. The adjudicator gives ``annotator_id`` and ``score``, and must not have
rated the group.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stages.ratings import packet
from stages.ratings.manifest import Manifest
from stages.ratings.reannotation import Disputed

COLUMNS = (*packet.TEMPLATE, "scores_given")


def queue(disputed: Sequence[Disputed], work: Manifest) -> bytes:
    """CSV in the canonical long format, round adjudication, with a column ``scores_given`` that ingest does not read."""
    rows = [
        {
            "group_id": cell.group_id,
            "candidate_id": cell.candidate_id,
            "dimension": cell.dimension,
            "round": "adjudication",
            "rubric_version": work.rubric_version,
            "project": work.project,
            "scores_given": " ".join(f"{score:g}" for score in cell.scores),
        }
        for cell in disputed
    ]
    return table(rows, COLUMNS)


def table(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> bytes:
    """Rows as CSV; absent cells are empty."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()
