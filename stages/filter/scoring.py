"""Scoring of edits in the filter step: slices of edits in, units with the tables ``edits`` and ``scores`` out, on Ray actors.

A slice is scored as soon as it is inspected: those of its rows that no gate drops by what is measured on the row itself. What is left after
all gates is part of these rows, so nothing is scored twice. Where a gate that compares rows drops, the rows left are scored afterwards.

Each actor has a model and two slices in flight: while the model computes for one, the other is prepared or published. Preparation
(``stages.scoring.preparation``) is done by the actor itself or, where a GPU must not wait for it, by tasks on CPUs. Passes are formed
inside a slice, so neither the number of actors nor that of preparing tasks changes a byte.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
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
from stages.engine.run_units import Follow, Job, run_jobs
from stages.engine.rundir import StepFolder
from stages.engine.units import Unit, UnitOutput, UnitRecord, Work
from stages.filter import scored, worker_counts
from stages.filter.config import FilterConfig
from stages.filter.inspection import rows_of
from stages.scoring.meter import Figures, Meter, summary
from stages.scoring.preparation import Prepared, Ready, pieces_of, prepare, prepared
from stages.scoring.rows import load_model, score_row

if TYPE_CHECKING:
    from reward import SampleError, Score
    from reward.inputs.batch import PreparedSample


class Scoring:
    """The scoring of the edits of some slices, as far as no earlier command has done it."""

    def __init__(
        self, context: Context, config: FilterConfig, step: StepFolder, model: Path, revision: str, slices: Sequence[edits.Slice]
    ) -> None:
        self.context, self.config, self.step, self.model, self.revision, self.slices = context, config, step, model, revision, slices
        self.families = [settings_hash(step.name, DECODER, piece.fingerprint, revision, config.token_budget) for piece in slices]
        self._known = scored.known(step, self.families)

    @property
    def units(self) -> list[list[UnitRecord]]:
        """The finished units of every slice in their order, also those of earlier commands."""
        return [self._known[family] for family in self.families]

    def check(self) -> None:
        """Raise ``ValueError`` when something is to be scored and the cluster is too small for it."""
        if not all(self.units):
            self._job([])

    def beside(self, inspected: Mapping[str, int], left: Callable[[UnitRecord], np.ndarray]) -> Job:
        """The job that scores a slice once it is inspected, as far as no unit has its rows; :meth:`finished` must get the records.

        inspected: the slice's place by the key of its inspected unit. left: numbers of its rows that no gate drops, ascending int64 [n].
        Raises ``ValueError`` when the cluster is too small.
        """
        return self._job([], lambda record: self._missing(inspected[record.key], left(record)))

    def finished(self, record: UnitRecord) -> None:
        """Take in a unit that was scored now."""
        self._known[record.family].append(record)

    def rest(self, left: np.ndarray) -> None:
        """Score the rows ``left``, bool by number, that no unit has. Raises ``ValueError`` when the cluster is too small."""
        firsts = [piece.rows[0][0] for piece in self.slices]
        units = []
        for place, (first, end) in enumerate(pairwise([*firsts, len(left)])):
            units += self._missing(place, first + np.flatnonzero(left[first:end]))
        if units:
            job = self._job(units)
            run_jobs(self.step, [job], cluster=self.context.cluster, workers=job.workers, rows_are="edits", finished=self.finished)

    def _missing(self, place: int, left: np.ndarray) -> list[Unit]:
        """The unit of those rows of a slice that no unit has, if there are any."""
        family = self.families[place]
        missing = np.setdiff1d(left, scored.rows_in(self.step, self._known[family]))
        if not len(missing):
            return []
        rest = rows_of(self.slices[place], missing)
        whole = len(rest.rows) == len(self.slices[place].rows)
        key = family if whole else settings_hash(family, [number for number, _ in rest.rows])
        name = f"rows {rest.rows[0][0]} to {rest.rows[-1][0]} of {rest.dataset}"
        return [Unit(key, rest, len(rest.rows), name, family)]

    def _job(self, units: Sequence[Unit], follows: Follow | None = None) -> Job:
        config, cluster = self.config, self.context.cluster
        workers = worker_counts.scoring(config, cluster)
        gpus = config.num_gpus or cluster.share_of_a_gpu(workers)
        if config.num_gpus:
            cluster.need(1, num_cpus=0, num_gpus=gpus, setting="filter.num_gpus")
        preparing = worker_counts.preparing(config, cluster)
        if preparing and not gpus and cluster.cpus <= workers:
            raise ValueError(
                f"filter.workers takes all {cluster.cpus} logical CPUs, so nothing is left for filter.prepare_workers; "
                "raise ray.num_cpus, lower filter.workers, or set filter.prepare_workers to 0"
            )
        return Job(
            units,
            partial(make_scoring, self.model, self.revision, config.token_budget, preparing, self.step.name),
            workers,
            num_cpus=0 if gpus else 1,  # the CPUs of a machine with GPUs are for inspection and preparation
            num_gpus=gpus,
            threads=2,
            tasks=preparing > 0,
            phase="score",
            show=summary,
            follows=follows,
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
