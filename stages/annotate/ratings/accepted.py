"""The ratings that count: all that stand in the ledger, or what quality control accepts."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from stages.annotate.ratings import imported_items as own_items
from stages.annotate.ratings import ledger, manifest
from stages.annotate.ratings.manifest import Manifest
from stages.annotate.ratings.rounds import EXAM
from stages.context import Context
from stages.engine import steps
from stages.engine.rundir import RunDir


def accepted_ratings(run: RunDir) -> tuple[pa.Table, dict[str, str]]:
    """The ratings that count, and the fingerprint of the decision: all that stand in the ledger but those of exams, and none while there
    was no quality control.

    Raises ``ValueError`` when the decision is older than the ledger.
    """
    annotate, folder = run.step(ledger.STEP), run.step(steps.ANNOTATION_QC)
    decision = folder.index()
    if decision is None:
        ratings = ledger.current(annotate)
        return ratings.filter(pc.not_equal(ratings["round"], EXAM)), {}
    if decision.inputs[ledger.STEP] != annotate.require().fingerprint:
        raise ValueError(
            f"the quality decision in {folder.path} is older than the ratings in {annotate.path}; run `pipeline annotate qc` again, "
            "or delete that folder to use all ratings"
        )
    return folder.read("ratings"), {steps.ANNOTATION_QC: decision.fingerprint}


def manifest_of(context: Context) -> Manifest:
    """What the ledger's ratings are ratings of."""
    annotate = context.run.step(ledger.STEP)
    index = annotate.require()
    brought = next((dataset for dataset in own_items.KINDS if dataset in index.inputs), None)
    if brought is not None:
        return own_items.manifest(brought, ledger.items(annotate, index), context.flow.annotate.rubric_version)
    return manifest.from_generate(context.run.step("generate"), context.flow.annotate, seed=context.flow.seed)
