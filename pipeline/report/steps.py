"""The steps of the flow: their commands, and how a section says that one is missing or was never asked for."""

from __future__ import annotations

from pipeline.report.blocks import Block, Missing, Paragraph
from pipeline.report.published import Published

COMMANDS = {
    "generate": "pipeline run generate",
    "annotate": "pipeline annotate ingest FILES",
    "preferences": "pipeline run preferences",
    "train-reward": "pipeline run train-reward",
    "evaluate-reward": "pipeline run evaluate-reward",
    "filter": "pipeline run filter",
    "finetune": "pipeline run finetune",
    "evaluate-editor": "pipeline run evaluate-editor",
}


def missing(published: Published, step: str) -> list[Block]:
    """A block that names the command of a step that is not done; nothing when it is done."""
    if published.done(step):
        return []
    if not published.planned(step):
        return [Paragraph(f"Step {step} is not part of this run's configuration.")]
    where = f"{published.path.parent.name}/{published.path.name}"
    config = f" --config {where}/config.yaml" if published.configuration else ""
    return [Missing(step, f"{COMMANDS[step]}{config} --run {where}")]
