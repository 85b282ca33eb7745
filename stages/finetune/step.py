"""Fine-tune: the base editor, then one arm per selection (paper 4.4).

The configuration chooses the editor: the toy data set's small one, whose base is trained here (`stages.finetune.small`), or a pretrained
one (`stages.finetune.large`). A training that was stopped resumes from its newest checkpoint and ends with the same parameters.
"""

from __future__ import annotations

from collections.abc import Sequence

from stages.context import Context
from stages.engine import steps
from stages.engine.rundir import Index
from stages.finetune import large, small
from stages.finetune.config import Arms, LargeFinetuneConfig

STEP = steps.FINETUNE


def check(context: Context) -> None:
    """Raise ``ValueError`` for what is missing, before any step of the command begins: selections of the arms, files of the editor.

    Nothing is looked at where the step is done.
    """
    config = context.flow.finetune
    if config is None or (context.run.step(STEP).index() is not None and not context.force):
        return
    filtered = context.run.step(steps.FILTER).index()
    known = set(filtered.results["selections"]) if filtered is not None else set()
    if context.flow.filter is not None:
        known |= {selection.name for selection in context.flow.filter.selections}
    if known:
        _check_arms(config.arms, sorted(known))
    if isinstance(config, LargeFinetuneConfig):
        large.check(config)


def run(context: Context) -> Index:
    """Train what is not trained yet; returns the step's index."""
    config: Arms = context.need("finetune")
    filtered = context.run.step(steps.FILTER).require()
    _check_arms(config.arms, sorted(filtered.results["selections"]))
    return (large if isinstance(config, LargeFinetuneConfig) else small).run(context, filtered)


def _check_arms(arms: Sequence[str], known: Sequence[str]) -> None:
    for arm in arms:
        if arm not in known:
            raise ValueError(f"finetune.arms: there is no selection {arm!r}; there are {', '.join(known)}")
