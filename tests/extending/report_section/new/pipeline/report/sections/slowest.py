"""The step that took longest."""

from __future__ import annotations

from pipeline import words
from pipeline.flow import STEP_NAMES
from pipeline.report.blocks import Paragraph, Section
from pipeline.report.published import Published

STEPS = STEP_NAMES


def section(published: Published) -> Section:
    """One sentence, from the times in the manifest."""
    seconds = {step: facts["seconds"] for step, facts in published.manifest.get("steps", {}).items()}
    slowest = max(seconds, key=seconds.__getitem__, default="")
    text = f"{slowest} took {words.duration(seconds[slowest])}." if seconds else "No step is done."
    return Section("slowest", "Slowest step", "", [Paragraph(text)])
