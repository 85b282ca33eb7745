"""The edits of one editor for some sources: the unit of work in which candidates are made.

Images of sources are read from the published table of the sources, so a unit is small. Batches are formed inside a unit, always the same
ones. Each finished batch goes into the unit's journal (:mod:`stages.generate.journal`), and a rerun does the others. A batch whose process
died, or was ended because it took too long, is tried once more; then its candidates are tried one by one, and one that ends its process
twice alone has failed.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial

import pyarrow.parquet as pq

from reward.inputs.decoding import decode
from stages.config import FlowConfig
from stages.editors.editing import AcceleratorLost, Editing, Result
from stages.editors.editor import EditRequest, Failure
from stages.engine.dispatch import CrewFailed
from stages.engine.prefetch import prefetch
from stages.engine.units import UnitOutput
from stages.generate.candidate_plan import PlannedEditor, planned
from stages.generate.config import FailureRules
from stages.generate.edit_task import ENDS, EditTask
from stages.generate.finishing import Candidate, Finishing, Made
from stages.generate.journal import Journal
from stages.generate.outputs import Outputs

AHEAD = 4
"""Sources that are decoded ahead of the editor."""


class EditWork:
    """The work function of an editor's units: loads it, and turns tasks into tables ``candidates``."""

    def __init__(self, flow: FlowConfig, number: int) -> None:
        """number: of the editor in ``generate.editors``. Raises ``CrewFailed`` when it cannot be loaded."""
        assert flow.generate is not None, "candidates are made by configured editors"
        self.planned: PlannedEditor = planned(flow)[number]
        self.rules: FailureRules = flow.generate.failures
        self.made: Counter[str] = Counter()
        self.turn = threading.Lock()
        """One unit is edited at a time; the table of the one before may still be written."""
        started = time.monotonic()
        self.finishing = Finishing(self.planned, flow.seed, Outputs(flow.generate.outputs))
        try:
            self.editing = Editing.of(self.planned.spec, self.planned.settings, flow)
        except Exception as error:  # plug-ins and their libraries raise anything
            raise CrewFailed(f"{self.planned.key}: {self.planned.name} cannot be loaded ({type(error).__name__}: {error})") from error
        self.loaded = time.monotonic() - started

    def close(self) -> None:
        """Close the editor."""
        self.editing.close()

    def __call__(self, task: EditTask) -> UnitOutput:
        """The candidates of a task. Raises ``CrewFailed`` when too many fail."""
        journal = Journal(task.journal)
        with self.turn:
            journal.begin(())
            figures = {"edits": 0.0, "seconds": 0.0, "loads": float(self.loaded > 0), "loading": self.loaded}
            self.loaded = 0.0
            try:
                self._make(task, journal, figures)
            except CrewFailed:
                journal.forget_failures()
                raise
        table = journal.table()
        assert table.num_rows == task.rows, f"{table.num_rows} candidates in the journal of a unit of {task.rows}"
        figures["failed"] = float(table["status"].to_pylist().count("failed"))
        return UnitOutput({"candidates": table}, rows_in=task.rows, rows_out=task.rows, figures=figures)

    def _make(self, task: EditTask, journal: Journal, figures: dict[str, float]) -> None:
        """Make what is not in the journal. A thread checks, encodes and keeps a batch while the next is edited."""
        with ThreadPoolExecutor(1) as thread, closing(prefetch(self._candidates(task), AHEAD * self.planned.count)) as candidates:
            settling: Future[list[Made]] | None = None
            for batch, known in self._parts(candidates, task, journal):
                journal.begin([candidate.place for candidate in batch])
                started = time.monotonic()
                results = known or self._edited([candidate.request for candidate in batch], task.seconds)
                if not known:
                    figures["edits"] += len(batch)
                    figures["seconds"] += time.monotonic() - started
                if settling is not None:
                    self._settle(settling.result(), task, journal)
                settling = thread.submit(self._keep, list(map(Made, batch, results)), journal)
            if settling is not None:
                self._settle(settling.result(), task, journal)
        journal.begin(())

    def _candidates(self, task: EditTask) -> Iterator[Candidate]:
        """All candidates of the unit in their order."""
        place = 0
        columns = ["source_id", "dataset", "image", "instruction", "metadata"]
        with pq.ParquetFile(task.sources) as table:
            for group in range(table.num_row_groups):
                for row in table.read_row_group(group, columns=columns).to_pylist():
                    image = decode(row["image"]["bytes"])
                    for seed in self.planned.seeds(self.finishing.run_seed, row["source_id"]):
                        request = EditRequest(image, row["instruction"], seed, row["dataset"], row["metadata"])
                        yield Candidate(place, row["source_id"], request)
                        place += 1

    def _parts(
        self, candidates: Iterator[Candidate], task: EditTask, journal: Journal
    ) -> Iterator[tuple[Sequence[Candidate], list[Result] | None]]:
        """What is left to make, batch by batch; with its results where these are known, since it ended its process twice."""
        finished = journal.finished()
        waiting: list[Candidate] = []

        def requests() -> Iterator[EditRequest]:
            for candidate in candidates:
                waiting.append(candidate)
                yield candidate.request

        for requested in self.editing.batches(requests()):
            batch, waiting[: len(requested)] = waiting[: len(requested)], []
            left = [candidate for candidate in batch if candidate.place not in finished]
            deaths, _ = task.deaths.get(tuple(candidate.place for candidate in batch), (0, False))
            if len(left) == len(batch) > 1 and deaths < ENDS:
                yield batch, None
                continue
            for candidate in left:
                deaths, hung = task.deaths.get((candidate.place,), (0, False))
                yield [candidate], [task.ended(hung)] if deaths >= ENDS else None

    def _edited(self, requests: Sequence[EditRequest], seconds: float) -> list[Result]:
        with _ended_after(seconds * len(requests)):
            try:
                return self.editing.edit(requests)
            except AcceleratorLost:
                traceback.print_exc()
                os._exit(1)  # so that another process goes on; what was in work is tried again there

    def _keep(self, batch: list[Made], journal: Journal) -> list[Made]:
        """Put a batch whose edits are checked into the journal, unless one of them is to be made again with another seed."""
        judged = [self.finishing.judged(made) for made in batch]
        if not any(made.needs_new_seed for made in judged):
            self._write(judged, journal)
        return judged

    def _settle(self, batch: list[Made], task: EditTask, journal: Journal) -> None:
        """Make again what needs a new seed, and count the failures of the batch. Raises ``CrewFailed`` when too many have failed."""
        if any(made.needs_new_seed for made in batch):
            edit = partial(self._alone, task, journal)
            batch = [self.finishing.with_new_seed(made, partial(edit, made)) if made.needs_new_seed else made for made in batch]
            self._write(batch, journal)
        self._count([made.result for made in batch if isinstance(made.result, Failure)], len(batch))

    def _alone(self, task: EditTask, journal: Journal, made: Made, request: EditRequest) -> Result:
        journal.begin([made.candidate.place])
        return self._edited([request], task.seconds)[0]

    def _write(self, batch: Sequence[Made], journal: Journal) -> None:
        journal.write(batch[0].candidate.place, [self.finishing.row(made) for made in batch])

    def _count(self, failures: Sequence[Failure], edits: int) -> None:
        """Raise ``CrewFailed`` when too large a share of this process's edits has failed."""
        self.made["edits"] += edits
        self.made["failed"] += len(failures)
        if failures and self.made["edits"] >= self.rules.after and self.made["failed"] > self.rules.share * self.made["edits"]:
            raise CrewFailed(
                f"{self.planned.key}: {self.planned.name} stopped, since {self.made['failed']} of {self.made['edits']} edits failed, the "
                f"last with {failures[-1].message!r}; repair it, or allow more with generate.failures.share"
            )


@contextmanager
def _ended_after(seconds: float) -> Generator[None]:
    """End this process, with a traceback of its threads on standard error, when the block takes longer. A thread without the interpreter's
    lock watches, so that code that never gives the lock back is ended, too."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__ or sys.stderr)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
