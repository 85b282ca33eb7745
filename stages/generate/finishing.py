"""From what an editor gave to a row of ``candidates``: the edit is checked, made again with another seed where the configuration says so,
encoded, and recorded."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from stages.editors.editing import Result
from stages.editors.editor import Edited, EditRequest, Failure
from stages.engine import contracts, images
from stages.generate.candidate_plan import PlannedEditor, drawn_seed
from stages.generate.outputs import Judged, Outputs


class Candidate(NamedTuple):
    """A candidate to make. ``place``: in its unit; ``request``: with the planned seed."""

    place: int
    source_id: str
    request: EditRequest


class Made(NamedTuple):
    """A candidate and what was made of it. ``again``: the request with another seed, where that was needed, after those ``tried``: the
    flags of their edits by seed."""

    candidate: Candidate
    result: Result | Judged
    again: EditRequest | None = None
    tried: Mapping[str, list[str]] = MappingProxyType({})

    @property
    def request(self) -> EditRequest:
        """The one that the result is of."""
        return self.again or self.candidate.request

    @property
    def needs_new_seed(self) -> bool:
        """Whether the edit is flagged and is to be made again."""
        return isinstance(self.result, Judged) and self.result.policy == "new-seed"


class Finishing:
    """The candidates of one editor."""

    def __init__(self, planned: PlannedEditor, run_seed: int, outputs: Outputs) -> None:
        self.planned = planned
        self.run_seed = run_seed
        self.outputs = outputs

    def judged(self, made: Made) -> Made:
        """The same, its edit checked; one that is to be dropped is a failure."""
        if isinstance(made.result, Edited):
            made = made._replace(result=self.outputs.judge(made.request, made.result))
        if isinstance(made.result, Judged) and made.result.policy == "drop":
            made = made._replace(result=made.result.failure)
        return made

    def with_new_seed(self, made: Made, edit: Callable[[EditRequest], Result]) -> Made:
        """The edit with the first seed whose edit is not flagged; a failure when there is none. Every seed is a hash of the planned one."""
        editor, source_id, planned_seed = self.planned, made.candidate.source_id, made.candidate.request.seed
        tried: dict[str, list[str]] = {}
        for number in range(1, self.outputs.config.new_seeds + 1):
            assert isinstance(made.result, Judged)
            tried[str(made.request.seed)] = made.result.flags
            seed = drawn_seed(self.run_seed, source_id, editor.spec.name, editor.settings_hash, planned_seed, number)
            request = replace(made.request, seed=seed)
            made = self.judged(made._replace(result=edit(request), again=request, tried=tried))
            if not made.needs_new_seed:
                return made
        assert isinstance(made.result, Judged)
        return made._replace(result=made.result.failure)

    def row(self, made: Made) -> dict[str, Any]:
        """Row of the ``candidates`` contract; that of an edit that failed has the reason and no image."""
        spec = self.planned.spec
        row = contracts.candidate(
            candidate_id=self.planned.candidate_id(made.candidate.source_id, made.candidate.request.seed),
            source_id=made.candidate.source_id,
            editor=spec.name,
            editor_revision=spec.revision,
            seed=made.request.seed,
            settings_hash=self.planned.settings_hash,
            licence=spec.licence.name,
        )
        if isinstance(made.result, Failure):
            return row | {"status": "failed", "reason": made.result.reason, "error": made.result.message}
        assert isinstance(made.result, Judged), "every edit is checked"
        edited = made.result.edited
        record = dict(edited.record) | made.result.measures | ({"flagged_seeds": dict(made.tried)} if made.tried else {})
        return row | {
            "image": images.stored(images.png(np.asarray(edited.image))),
            "flags": made.result.flags,
            "record": json.dumps(record, sort_keys=True, ensure_ascii=False),
            "metadata": edited.metadata,
        }
