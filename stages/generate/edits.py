"""The edits of one editor for some sources: the unit of work in which candidates are made.

Images of sources are read from the published table of the sources, so a unit is small. Batches are formed inside a unit, always the same
ones. Each finished batch goes into the unit's journal (:mod:`stages.generate.journal`), and a rerun does the others. A batch whose process
died, or was ended because it took too long, is tried once more; then its candidates are tried one by one, and one that ends its process
twice alone has failed. A thread measures, encodes and keeps a batch while the editor works on the next, and the end of a unit while it
works on the next unit.
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
from itertools import chain, islice

from reward.inputs.decoding import decode
from stages.config import FlowConfig
from stages.editors import catalogue
from stages.editors.editing import AcceleratorLost, Editing, Result
from stages.editors.editor import EditRequest
from stages.engine.dispatch import CrewFailed
from stages.engine.prefetch import prefetch
from stages.engine.units import UnitOutput
from stages.generate.candidate_plan import PlannedEditor, planned
from stages.generate.config import GenerateConfig
from stages.generate.edit_task import ENDS, EditTask
from stages.generate.finishing import Candidate, Finishing
from stages.generate.journal import Journal
from stages.generate.outputs import Outputs
from stages.generate.settling import CANDIDATES, FAILED, is_kept, table_of

AHEAD = 4
"""Sources that are decoded ahead of the editor."""


class EditWork:
    """The work function of an editor's units: loads it, and turns tasks into tables of the contract ``candidates``, each of the edits that
    the checks say the same of (:mod:`stages.generate.settling`)."""

    def __init__(self, flow: FlowConfig, number: int) -> None:
        """number: of the editor in ``generate.editors``. Raises ``CrewFailed`` when it cannot be loaded."""
        assert flow.generate is not None, "candidates are made by configured editors"
        self.planned: PlannedEditor = planned(flow)[number]
        self.config: GenerateConfig = flow.generate
        self.run_seed = flow.seed
        self.made: Counter[str] = Counter()
        self.turn = threading.Lock()
        """One unit is edited at a time; the end of the one before may still be kept and its table written."""
        self.keeper = ThreadPoolExecutor(1)
        self.keeping: Future[None] | None = None
        """Of the last batch, of whatever unit."""
        started = time.monotonic()
        self.finishing = Finishing(self.planned, Outputs())
        try:
            self.editing = Editing.of(self.planned.spec, self.planned.settings, flow)
        except Exception as error:  # plug-ins and their libraries raise anything
            said = f"{self.planned.name} cannot be loaded ({type(error).__name__}: {error})"
            raise CrewFailed(catalogue.under_key(said, self.planned.key)) from error
        self.idle_since = time.monotonic()
        self.cpu_until = time.process_time()
        self.loaded = self.idle_since - started

    def close(self) -> None:
        """Close the editor."""
        self.keeper.shutdown()
        self.editing.close()

    def __call__(self, task: EditTask) -> UnitOutput:
        """The edits of a task. Raises ``CrewFailed`` when too many fail.

        Figures: ``edits`` and their ``seconds``; ``waiting``, seconds that the loaded editor had no batch; ``cpu``, seconds of all
        processors that this process took since its last unit; ``loads`` of the editor, and seconds of ``loading``.
        """
        journal = Journal(task.journal)
        figures = {"edits": 0.0, "seconds": 0.0, "waiting": 0.0}
        try:
            self._make(task, journal, figures)
        except CrewFailed:
            journal.forget(lambda row: not is_kept(row, self.config.outputs))
            raise
        tables = journal.tables([CANDIDATES], table_of)
        made = sum(table.num_rows for table in tables.values())
        assert made == task.rows, f"{made} candidates in the journal of a unit of {task.rows}"
        figures["failed"] = float(tables[FAILED].num_rows) if FAILED in tables else 0.0
        return UnitOutput(tables, rows_in=task.rows, rows_out=task.rows, figures=figures)

    def _make(self, task: EditTask, journal: Journal, figures: dict[str, float]) -> None:
        """Make what is not in the journal. A thread measures, encodes and keeps a batch while the next is edited."""
        last: Future[None] | None = None
        with closing(prefetch(self._candidates(task), AHEAD * self.planned.count)) as candidates:
            parts = self._parts(candidates, task, journal)
            first = [*islice(parts, 1)]  # read before the unit's turn
            with self.turn:
                for batch, known in chain(first, parts):
                    journal.begin([candidate.place for candidate in batch])
                    results = known or self._edited([candidate.request for candidate in batch], task.seconds, figures)
                    if self.keeping is not None:
                        self.keeping.result()
                    last = self.keeping = self.keeper.submit(self._keep, batch, results, journal, counts=task.retries is None)
                figures |= {"loads": float(self.loaded > 0), "loading": self.loaded}
                figures["cpu"], self.cpu_until = time.process_time() - self.cpu_until, time.process_time()
                self.loaded = 0.0
        if last is not None:
            last.result()
        journal.begin(())

    def _candidates(self, task: EditTask) -> Iterator[Candidate]:
        """All candidates of the unit in their order."""
        retries = None if task.retries is None else {retry.candidate_id: retry for retry in task.retries}
        place = 0
        for row in task.sources_with(["source_id", "dataset", "image", "instruction", "metadata"]):
            source_id = row["source_id"]
            seeds = {self.planned.candidate_id(source_id, seed): seed for seed in self.planned.seeds(self.run_seed, source_id)}
            wanted = [name for name in seeds if retries is None or name in retries]
            if not wanted:
                continue
            image = decode(row["image"]["bytes"])
            for name in wanted:
                retry = retries[name] if retries is not None else None
                seed = seeds[name]
                if retry is not None and retry.new_seed:
                    seed = self.planned.new_seed(self.run_seed, source_id, seed, retry.new_seed)
                request = EditRequest(image, row["instruction"], seed, row["dataset"], row["metadata"])
                yield Candidate(place, name, source_id, request, retry)
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

    def _edited(self, requests: Sequence[EditRequest], seconds: float, figures: dict[str, float]) -> list[Result]:
        started = time.monotonic()
        with _ended_after(seconds * len(requests)):
            try:
                results = self.editing.edit(requests)
            except AcceleratorLost:
                traceback.print_exc()
                os._exit(1)  # so that another process goes on; what was in work is tried again there
        ended = time.monotonic()
        for name, value in (("edits", len(requests)), ("seconds", ended - started), ("waiting", started - self.idle_since)):
            figures[name] += value
        self.idle_since = ended
        return results

    def _keep(self, batch: Sequence[Candidate], results: Sequence[Result], journal: Journal, *, counts: bool) -> None:
        """Put a batch into the journal. Raises ``CrewFailed`` when too large a share of this process's edits has failed, or is flagged so
        that it is not kept; edits that are made again do not count."""
        rows = list(map(self.finishing.row, batch, results))
        failures = [row for row in rows if not is_kept(row, self.config.outputs)]
        if counts:
            self.made.update(edits=len(rows), failed=len(failures))
        rules = self.config.failures
        if counts and failures and self.made["edits"] >= rules.after and self.made["failed"] > rules.share * self.made["edits"]:
            last = failures[-1]["error"] or f"flagged as {' and '.join(failures[-1]['flags'])}"
            raise CrewFailed(
                f"{self.planned.key}: {self.planned.name} stopped, since {self.made['failed']} of {self.made['edits']} edits failed, the "
                f"last with {last!r}; repair it, or allow more with generate.failures.share"
            )
        journal.write(batch[0].place, rows)


@contextmanager
def _ended_after(seconds: float) -> Generator[None]:
    """End this process, with a traceback of its threads on standard error, when the block takes longer. A thread without the interpreter's
    lock watches, so that code that never gives the lock back is ended, too."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__ or sys.stderr)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
