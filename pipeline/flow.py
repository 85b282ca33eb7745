"""The table of the steps, in their order. Everything else that lists steps reads it; it imports no step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stages.engine import steps

if TYPE_CHECKING:
    from stages.config import FlowConfig


@dataclass(frozen=True)
class Step:
    """A step of the flow.

    ``section``: `run all` includes the step if the configuration has this section. ``module``: where its function ``run(context)`` is.
    ``reads`` and ``writes``: its input and output in words. ``detail``: a further sentence for its help.
    """

    name: str
    section: str
    module: str
    reads: str
    writes: str
    detail: str = ""

    @property
    def command(self) -> str:
        """The command that makes the step."""
        return f"pipeline {steps.COMMANDS.get(self.name, f'run {self.name}')}"


STEPS = (
    Step(
        steps.GENERATE,
        "generate",
        "stages.generate.step",
        "sources",
        "candidates",
        "Every editor edits every source, or candidates made elsewhere are read.",
    ),
    Step(steps.ANNOTATE, "generate", "stages.annotate.step", "candidates", "ratings"),
    Step(steps.PREFERENCES, "generate", "stages.preferences.step", "ratings", "preference pairs", "Statistics are written beside them."),
    Step(steps.TRAIN_REWARD, "generate", "stages.train_reward.step", "preference pairs", "a reward model"),
    Step(
        steps.EVALUATE_REWARD,
        "generate",
        "stages.evaluate_reward.step",
        "the reward model and held-out ratings",
        "its accuracy, calibration and baselines",
    ),
    Step(steps.FILTER, "filter", "stages.filter.step", "noisy edits", "scores, selections and webdataset shards"),
    Step(
        steps.FINETUNE,
        "finetune",
        "stages.finetune.step",
        "shards",
        "editors",
        "One editor is the base; each of the others is trained on one selection.",
    ),
    Step(
        steps.EVALUATE_EDITOR,
        "evaluate_editor",
        "stages.evaluate_editor.step",
        "editors and a benchmark",
        "scores per editor and their differences",
        "One judge scores all editors in one pass.",
    ),
)
STEPS_BY_NAME = {step.name: step for step in STEPS}
STEP_NAMES = tuple(STEPS_BY_NAME)


def steps_of(flow: FlowConfig, name: str) -> list[Step]:
    """The steps that a command runs: one of them, or for ``all`` every one that the configuration has a section for."""
    if name == "all":
        return [step for step in STEPS if getattr(flow, step.section) is not None]
    return [STEPS_BY_NAME[name]]
