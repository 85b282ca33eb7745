"""Steps of the run's configuration that are not done, with their commands."""

from __future__ import annotations

from pipeline.flow import STEP_NAMES
from pipeline.report.blocks import Section
from pipeline.report.published import Published

STEPS = STEP_NAMES


def section(published: Published) -> Section:
    """A command per step; nothing for a run that is complete."""
    return Section("next", "Next steps", "", [block for step in STEP_NAMES for block in published.missing(step)])
