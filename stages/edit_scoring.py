"""Scoring of edits in the filter step: slices of edits in, tables ``edits`` and ``scores`` out, on Ray actors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages import contracts, duplicates, edits
from stages.config import FilterConfig
from stages.context import Context
from stages.ids import settings_hash
from stages.rundir import StepFolder
from stages.scoring import load_model, score_rows
from stages.units import Done, Quarantined, Unit, UnitOutput, Work, run_units

if TYPE_CHECKING:
    from reward import RewardModel

EDITS_IN_MEMORY = 128
"""Edits of a slice that are held with their images at a time."""


def score_edits(
    context: Context, config: FilterConfig, step: StepFolder, model: Path, revision: str, slices: Sequence[edits.Slice]
) -> Done:
    """Score what is not scored yet; the records of all slices, in their order."""
    units = [Unit(settings_hash(step.name, piece.fingerprint, revision, config.token_budget), piece, len(piece.rows)) for piece in slices]
    work = partial(make_scoring, model, revision, config.token_budget)
    gpus = config.num_gpus or min(1, context.cluster.gpus) / config.workers
    done = run_units(step, units, work, cluster=context.cluster, workers=config.workers, num_gpus=gpus, rows_are="edits")
    return duplicates.set_aside(step, done)


def make_scoring(model: Path, revision: str, token_budget: int) -> Work:
    """Load the model and return the work of one slice: tables ``edits`` and ``scores`` with the same samples in the same order."""
    loaded = load_model(model)

    def work(piece: edits.Slice) -> UnitOutput:
        references: list[dict[str, Any]] = []
        rows: list[dict[str, Any]] = []
        quarantine: list[Quarantined] = []
        entries = edits.load(piece)
        while batch := list(islice(entries, EDITS_IN_MEMORY)):
            sound = [entry for entry in batch if isinstance(entry, edits.Edit)]
            quarantine += [entry for entry in batch if isinstance(entry, Quarantined)]
            for edit, scored in zip(sound, _scored(loaded, sound, revision, token_budget), strict=True):
                if isinstance(scored, Quarantined):
                    quarantine.append(scored)
                else:
                    references.append(edit.row(with_images=False))
                    rows.append(scored)
        tables = {"edits": contracts.table("edits", references), "scores": contracts.table("scores", rows)}
        return UnitOutput(tables, len(piece.rows), len(rows), quarantine)

    return work


def _scored(model: RewardModel, batch: Sequence[edits.Edit], revision: str, token_budget: int) -> list[dict[str, Any] | Quarantined]:
    """A row of the ``scores`` contract for each edit, or why it has none."""
    from reward import EditSample

    samples = [(edit.sample_id, EditSample(edit.source, edit.instruction, edit.edited), edit.task) for edit in batch]
    result = score_rows(model, samples, revision=revision, token_budget=token_budget, languages=[edit.language for edit in batch])
    reasons = {row.row_id: row for row in result.quarantine}
    rows = iter(result.rows)
    scored: list[dict[str, Any] | Quarantined] = []
    for edit in batch:
        refused = reasons.get(edit.sample_id)
        row = None if refused else next(rows)
        if refused:
            scored.append(replace(refused, row_id=edit.row_id, position=edit.position))
        elif row is not None and not math.isfinite(row["overall_mean"] + row["overall_sigma"]):
            message = f"the model's score is {row['overall_mean']} with sigma {row['overall_sigma']}"
            scored.append(Quarantined(edit.row_id, edit.position, "score-not-finite", message))
        else:
            assert row is not None and row["sample_id"] == edit.sample_id
            scored.append(row)
    return scored
