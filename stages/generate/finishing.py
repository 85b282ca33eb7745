"""From what an editor gave to a row of ``candidates``: the edit is measured, encoded, and recorded."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np

from stages.editors.editing import Result
from stages.editors.editor import EditRequest, Failure
from stages.engine import contracts, images
from stages.generate.candidate_plan import PlannedEditor
from stages.generate.edit_task import Retry
from stages.generate.outputs import Outputs


class Candidate(NamedTuple):
    """A candidate to make. ``place``: in its unit. ``retry``: where it is made again."""

    place: int
    candidate_id: str
    source_id: str
    request: EditRequest
    retry: Retry | None = None


class Finishing:
    """The candidates of one editor."""

    def __init__(self, planned: PlannedEditor, outputs: Outputs) -> None:
        self.planned = planned
        self.outputs = outputs

    def row(self, candidate: Candidate, result: Result) -> dict[str, Any]:
        """Row of the ``candidates`` contract; that of an edit that failed has the reason and no image."""
        spec = self.planned.spec
        row = contracts.candidate(
            candidate_id=candidate.candidate_id,
            source_id=candidate.source_id,
            editor=self.planned.label,
            editor_revision=spec.revision,
            seed=candidate.request.seed,
            settings_hash=self.planned.settings_hash,
            licence=spec.licence.name,
        )
        if isinstance(result, Failure):
            return row | {"status": "failed", "reason": result.reason, "error": result.message}
        measured = self.outputs.measure(candidate.request, result)
        record = dict(result.record) | measured.measures | (candidate.retry.record() if candidate.retry else {})
        return row | {
            "image": images.stored(images.png(np.asarray(result.image))),
            "flags": measured.flags,
            "record": json.dumps(record, sort_keys=True, ensure_ascii=False),
            "metadata": result.metadata,
        }
