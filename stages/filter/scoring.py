"""Scoring of edits in the filter step: slices of edits in, units with the tables ``edits`` and ``scores`` out, on Ray actors.

Each actor has a model and two slices in flight: while the model computes for one, the other is prepared or published. Preparation
(``stages.scoring.preparation``) is done by the actor itself or, where a GPU must not wait for it, by tasks on CPUs. Passes are formed
inside a slice, so neither the number of actors nor that of preparing tasks changes a byte.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from reward.inputs.decoding import DECODER
from reward.model.origin import OTHER_DOMAIN, other_domain
from stages.context import Context
from stages.datasets import readers as edits
from stages.engine import contracts
from stages.engine.contracts import Quarantined
from stages.engine.ids import settings_hash
from stages.engine.run_units import run_units
from stages.engine.rundir import StepFolder
from stages.engine.units import Done, Unit, UnitOutput, UnitRecord, Work
from stages.filter import scored, worker_counts
from stages.filter.config import FilterConfig
from stages.filter.inspection import rows_of
from stages.scoring.meter import Figures, Meter, summary
from stages.scoring.preparation import Prepared, Ready, pieces_of, prepare, prepared
from stages.scoring.rows import load_model, score_row

if TYPE_CHECKING:
    from reward import SampleError, Score
    from reward.inputs.batch import PreparedSample

PREPARE_WORKERS = 2
"""Pieces that are prepared at a time for each slice in flight on a GPU: four processes per GPU, more than photographs need."""


def score_edits(
    context: Context, config: FilterConfig, step: StepFolder, model: Path, revision: str, slices: Sequence[edits.Slice], left: np.ndarray
) -> list[list[UnitRecord]]:
    """Score the rows ``left``, bool by number, that no earlier unit has; returns the units of every slice in their order.

    Raises ``ValueError`` when the cluster is too small.
    """
    families = [settings_hash(step.name, DECODER, piece.fingerprint, revision, config.token_budget) for piece in slices]
    units_of = scored.known(step, families)
    missing = scored.missing(step, (record for family in families for record in units_of[family]), left)
    starts = [piece.rows[0][0] for piece in slices]
    units = []
    for rest in rows_of(slices, missing):
        place = bisect_right(starts, rest.rows[0][0]) - 1
        whole = len(rest.rows) == len(slices[place].rows)
        key = families[place] if whole else settings_hash(families[place], [number for number, _ in rest.rows])
        units.append(Unit(key, rest, len(rest.rows), _name(rest), families[place]))
    for record in _score(context, config, step, model, revision, units).records:
        units_of[record.family].append(record)
    return [units_of[family] for family in families]


def _score(context: Context, config: FilterConfig, step: StepFolder, model: Path, revision: str, units: Sequence[Unit]) -> Done:
    if not units:
        return Done([])
    workers = worker_counts.scoring(config, context.cluster)
    gpus = config.num_gpus or context.cluster.share_of_a_gpu(workers)
    if config.num_gpus:
        context.cluster.need(1, num_cpus=0, num_gpus=gpus, setting="filter.num_gpus")
    preparing = config.prepare_workers if config.prepare_workers is not None else PREPARE_WORKERS if gpus else 0
    if preparing and not gpus and context.cluster.cpus <= workers:
        raise ValueError(
            f"filter.workers takes all {context.cluster.cpus} logical CPUs, so nothing is left for filter.prepare_workers; "
            "raise ray.num_cpus, lower filter.workers, or set filter.prepare_workers to 0"
        )
    work = partial(make_scoring, model, revision, config.token_budget, preparing, step.name)
    return run_units(
        step,
        units,
        work,
        cluster=context.cluster,
        workers=workers,
        num_cpus=0 if gpus else 1,  # the CPUs of a machine with GPUs are for preparation
        num_gpus=gpus,
        threads=2,
        phase="score",
        rows_are="edits",
        show=summary,
    )


def make_scoring(model: Path, revision: str, token_budget: int, prepare_workers: int, step: str) -> Work:
    """Load the model and return the work of one slice: tables ``edits`` and ``scores`` with the same samples in the same order.

    revision: the model's, which the rows name.
    """
    from reward.inference.compute import peak_of
    from reward.inference.passes import Inference
    from reward.inference.scorer import score_prepared

    inference = Inference(load_model(model), token_budget)
    origin = inference.model.origin
    area = inference.model.config.presentation.image_area
    meter = Meter(step, peak_of(inference.model.device))

    def work(piece: edits.Slice) -> UnitOutput:
        figures: Figures = {}
        ready: list[Prepared] = []

        def shown() -> Iterator[PreparedSample | SampleError]:
            for part in prepared(pieces_of(piece, area), partial(prepare, model), workers=prepare_workers):
                yield from part.shown
                ready.append(replace(part, shown=[]))

        scores = list(score_prepared(inference=inference, prepared=shown(), on_pass=lambda spent: meter.count(spent, figures)))
        flags = [OTHER_DOMAIN] if other_domain(origin, edits.domain_of(piece.dataset)) else []
        return _output(ready, scores, revision, flags, len(piece.rows), figures)

    return work


def _output(
    ready: Sequence[Prepared], scores: Sequence[Score | SampleError], revision: str, flags: list[str], rows_in: int, figures: Figures
) -> UnitOutput:
    """Tables and quarantine in the order of the rows; every score has the flags."""
    in_order = iter(scores)
    references: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    quarantine: list[Quarantined] = []
    for part in ready:
        of_entry = {number: next(in_order) for number in part.order}
        for number, entry in enumerate(part.entries):
            made = entry if isinstance(entry, Quarantined) else _row(entry, of_entry[number], revision, flags)
            if isinstance(made, Quarantined):
                quarantine.append(made)
            else:
                assert isinstance(entry, Ready)
                references.append(entry.reference)
                rows.append(made)
    assert next(in_order, None) is None
    tables = {"edits": contracts.table("edits", references), "scores": contracts.table("scores", rows)}
    return UnitOutput(tables, rows_in, len(rows), quarantine, figures)


def _row(entry: Ready, score: Score | SampleError, revision: str, flags: list[str]) -> dict[str, Any] | Quarantined:
    """A row of the ``scores`` contract, or why there is none."""
    from reward import SampleError
    from reward.inference.passes import MemoryNeedError

    if isinstance(score, SampleError):
        reason = "out-of-memory" if isinstance(score, MemoryNeedError) else "unscorable"
        return Quarantined(entry.row_id, entry.position, reason, str(score))
    if not math.isfinite(score.overall_mean + score.overall_sigma):
        message = f"the model's score is {score.overall_mean} with sigma {score.overall_sigma}"
        return Quarantined(entry.row_id, entry.position, "score-not-finite", message)
    known = entry.reference
    return score_row(
        known["sample_id"],
        score,
        revision=revision,
        change=entry.change,
        task=known["task"],
        language=known["language"],
        flags=flags,
    )


def _name(piece: edits.Slice) -> str:
    numbers = [number for number, _ in piece.rows]
    return f"rows {min(numbers)} to {max(numbers)} of {piece.dataset}" if numbers else "no rows"
