"""The ratings that later steps use: those that quality control accepted, or all of the ledger."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from stages.annotate.ratings import ledger
from stages.annotate.ratings.delivery import ImportedDataset
from stages.annotate.ratings.imported_items import imported_task
from stages.annotate.ratings.rating_task import EXAM, RatingTask, Scale, generated_task
from stages.context import Context
from stages.engine import steps
from stages.engine.rundir import RunDir


def accepted_ratings(run: RunDir) -> tuple[pa.Table, dict[str, str]]:
    """The ratings that count, and the fingerprint of the quality step's index by its name (empty without one).

    Without quality control these are all current ratings of the ledger except exams, and no fingerprint. Raises ``ValueError`` when the
    decision is older than the ledger, and when a file of the ledger or of the decision is missing or changed.
    """
    annotate, folder = run.step(steps.ANNOTATE), run.step(steps.ANNOTATION_QC)
    decision = folder.index()
    if decision is None:
        ratings = ledger.current(annotate)
        return ratings.filter(pc.not_equal(ratings["round"], EXAM)), {}
    if decision.inputs[steps.ANNOTATE] != ledger.verified(annotate).fingerprint:
        raise ValueError(
            f"the quality decision in {folder.path} is older than the ratings in {annotate.path}; run `pipeline annotate qc` again, "
            "or delete that folder to use all ratings"
        )
    damaged = folder.damage(decision)
    if damaged is not None:
        raise ValueError(
            f"the quality decision in {folder.path} is damaged: {damaged} is missing or changed; run `pipeline annotate qc` again"
        )
    return folder.read("ratings"), {steps.ANNOTATION_QC: decision.fingerprint}


def rating_task_of(context: Context) -> RatingTask:
    """The rating task of the ledger."""
    annotate = context.run.step(steps.ANNOTATE)
    index = annotate.require()
    if steps.GENERATE in index.inputs:
        return generated_task(context)
    (name,), levels = index.inputs, index.settings["scale"]
    dataset = ImportedDataset(name, tuple(index.settings["dimensions"]), Scale(levels[0], levels[-1], levels[1] - levels[0]), split="")
    return imported_task(dataset, ledger.items(annotate, index), context.flow.annotate.rubric_version)
