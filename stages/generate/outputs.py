"""What is measured of every edit, and what becomes of one that a check flags (``generate.outputs``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stages.editors.alignment import shift_and_zoom
from stages.editors.config import OutputPolicy, OutputsConfig
from stages.editors.editor import Edited, EditRequest, Failure
from stages.editors.output_checks import check, content_filter

LEAST_SIDE = 64
"""Pixels of the shorter side from which edits are measured: checks and thresholds are of photographs, and of a drawing of 32 pixels a line
is noise. Below, only another size is flagged."""
DIGITS = 4


@dataclass(frozen=True)
class Judged:
    """An edit with its measures, as they go into the record of its candidate; the checks that flag it, and what follows."""

    edited: Edited
    measures: dict[str, Any]
    flags: list[str]
    policy: OutputPolicy

    @property
    def failure(self) -> Failure:
        """The edit as one that is not used."""
        measured = ", ".join(f"{name} {value:g}" for name, value in self.measures["measures"].items())
        return Failure(self.flags[0], f"the edit is flagged as {' and '.join(self.flags)} ({measured})")


class Outputs:
    """The checks of a configuration. Raises ``ValueError`` naming a content filter that is not installed."""

    def __init__(self, config: OutputsConfig) -> None:
        self.config = config
        self.filter = content_filter(config.content_filter) if config.content_filter else None

    def judge(self, request: EditRequest, edited: Edited) -> Judged:
        """Measure an edit of a request whose image is the source."""
        measures: dict[str, Any] = {"measures": {}, "shift": None, "zoom": None}
        flags = ["wrong-size"] if edited.image.size != request.image.size else []
        if min(request.image.size) >= LEAST_SIDE:
            measures["measures"], flags = check(request.image, edited.image)
            if (found := shift_and_zoom(request.image, edited.image)) is not None:
                measures |= {"shift": [round(found.dx, DIGITS), round(found.dy, DIGITS)], "zoom": round(found.zoom, DIGITS)}
        if "returned" in dict(edited.record):  # of another size than its canvas
            flags = [*dict.fromkeys([*flags, "wrong-size"])]
        if self.filter is not None and self.filter(edited.image, request.instruction):
            flags = [*flags, "content"]
        return Judged(edited, measures, flags, self.config.policy(flags))
