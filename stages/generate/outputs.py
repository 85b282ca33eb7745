"""What is measured of every edit. What becomes of one that a check flags is decided later (:mod:`stages.generate.settling`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from PIL import Image

from stages.editors.alignment import Reference
from stages.editors.editor import Edited, EditRequest
from stages.editors.output_checks import check

LEAST_SIDE = 64
"""Pixels of the shorter side from which edits are measured: checks and thresholds are of photographs, and of a drawing of 32 pixels a line
is noise. Below, only another size is flagged."""
DIGITS = 4


@dataclass(frozen=True)
class Measured:
    """An edit with its measures, as they go into the record of its candidate, and the checks that flag it."""

    edited: Edited
    measures: dict[str, Any]
    flags: list[str]


class Outputs:
    """The checks."""

    def __init__(self) -> None:
        self._reference: tuple[Image.Image, Reference] | None = None
        """The last source: edits in succession often share it."""

    def measure(self, request: EditRequest, edited: Edited) -> Measured:
        """Measure an edit of a request whose image is the source. Not from several threads at a time."""
        measures: dict[str, Any] = {"measures": {}, "shift": None, "zoom": None}
        flags = ["wrong-size"] if edited.image.size != request.image.size else []
        if min(request.image.size) >= LEAST_SIDE:
            measures["measures"], flags = check(request.image, edited.image)
            if (found := self._of(request.image).shift_and_zoom(edited.image)) is not None:
                measures |= {"shift": [round(found.dx, DIGITS), round(found.dy, DIGITS)], "zoom": round(found.zoom, DIGITS)}
        if "returned" in dict(edited.record):  # of another size than its canvas
            flags = [*dict.fromkeys([*flags, "wrong-size"])]
        return Measured(edited, measures, flags)

    def _of(self, source: Image.Image) -> Reference:
        if self._reference is None or self._reference[0] is not source:
            self._reference = source, Reference(source)
        return self._reference[1]
