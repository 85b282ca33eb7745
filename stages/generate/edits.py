"""The edits of one editor for some sources: the unit of work in which candidates are made.

Images of sources are read from the published table of the sources, so a unit is small. Batches are formed inside a unit, always the same
ones. Each finished batch goes into the unit's journal (:mod:`stages.generate.journal`), and a rerun does the others. A batch whose process
died, or was ended because it took too long, is tried once more; then its candidates are tried one by one, and one that ends its process
twice alone has failed.
"""

from __future__ import annotations

import faulthandler
import json
import sys
import time
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from reward.inputs.decoding import decode
from stages.config import FlowConfig
from stages.editors.editing import Editing, Result
from stages.editors.editor import EditRequest, Failure
from stages.engine import contracts, images
from stages.engine.dispatch import CrewFailed
from stages.engine.prefetch import prefetch
from stages.engine.units import UnitOutput
from stages.generate.candidate_plan import PlannedEditor, planned
from stages.generate.config import FailureRules
from stages.generate.journal import Journal

ENDS = 2
"""A candidate that has ended so many processes alone has failed."""
AHEAD = 4
"""Sources that are decoded ahead of the editor."""

Places = tuple[int, ...]
"""Places of candidates in their unit: by source, then by seed."""


@dataclass(frozen=True)
class EditTask:
    """Candidates, so many ``rows``, of the sources in a table. ``seconds``: after which an edit counts as hanging. ``deaths``: how many
    processes ended while these candidates were in work, in this command, and whether the last took too long."""

    sources: str
    rows: int
    journal: str
    seconds: float
    deaths: dict[Places, tuple[int, bool]] = field(default_factory=dict)

    def after_death(self) -> EditTask | None:
        """The task with one more death (:class:`stages.engine.fatal_rows.Recording`)."""
        places, since = Journal(self.journal).begun()
        if not places:
            return None
        count, _ = self.deaths.get(places, (0, False))
        return replace(self, deaths=self.deaths | {places: (count + 1, since >= self.seconds * len(places))})


class _Candidate(NamedTuple):
    """A candidate to make. ``seed``: the planned one; ``request``: with that seed."""

    place: int
    source_id: str
    request: EditRequest


class EditWork:
    """The work function of an editor's units: loads it, and turns tasks into tables ``candidates``."""

    def __init__(self, flow: FlowConfig, number: int) -> None:
        """number: of the editor in ``generate.editors``. Raises ``CrewFailed`` when it cannot be loaded."""
        assert flow.generate is not None, "candidates are made by configured editors"
        self.planned: PlannedEditor = planned(flow)[number]
        self.run_seed = flow.seed
        self.rules: FailureRules = flow.generate.failures
        self.made: Counter[str] = Counter()
        started = time.monotonic()
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
        """Make what is not in the journal. A thread writes a batch while the next is edited."""
        with ThreadPoolExecutor(1) as thread, closing(prefetch(self._candidates(task), AHEAD * self.planned.count)) as candidates:
            writing = None
            for batch, known in self._parts(candidates, task, journal):
                journal.begin([candidate.place for candidate in batch])
                started = time.monotonic()
                results = known or self._edited(batch, task.seconds)
                figures["edits"] += len(batch)
                figures["seconds"] += time.monotonic() - started
                if writing is not None:
                    writing.result()
                writing = thread.submit(self._write, journal, batch, results)
                self._count(results)
            if writing is not None:
                writing.result()

    def _candidates(self, task: EditTask) -> Iterator[_Candidate]:
        """All candidates of the unit in their order."""
        place = 0
        columns = ["source_id", "dataset", "image", "instruction", "metadata"]
        with pq.ParquetFile(task.sources) as table:
            for group in range(table.num_row_groups):
                for row in table.read_row_group(group, columns=columns).to_pylist():
                    image = decode(row["image"]["bytes"])
                    for seed in self.planned.seeds(self.run_seed, row["source_id"]):
                        request = EditRequest(image, row["instruction"], seed, row["dataset"], row["metadata"])
                        yield _Candidate(place, row["source_id"], request)
                        place += 1

    def _parts(
        self, candidates: Iterator[_Candidate], task: EditTask, journal: Journal
    ) -> Iterator[tuple[Sequence[_Candidate], list[Result] | None]]:
        """What is left to make, batch by batch; with its results where these are known, since it ended its process twice."""
        finished = journal.finished()
        waiting: list[_Candidate] = []

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
                yield [candidate], [_ended(task, hung)] if deaths >= ENDS else None

    def _edited(self, batch: Sequence[_Candidate], seconds: float) -> list[Result]:
        with _ended_after(seconds * len(batch)):
            return self.editing.edit([candidate.request for candidate in batch])

    def _write(self, journal: Journal, batch: Sequence[_Candidate], results: Sequence[Result]) -> None:
        rows = [self._row(candidate, result) for candidate, result in zip(batch, results, strict=True)]
        journal.write(batch[0].place, rows)

    def _row(self, candidate: _Candidate, result: Result) -> dict[str, Any]:
        """Row of the ``candidates`` contract; that of an edit that failed has the reason and no image."""
        spec = self.planned.spec
        row = contracts.candidate(
            candidate_id=self.planned.candidate_id(candidate.source_id, candidate.request.seed),
            source_id=candidate.source_id,
            editor=spec.name,
            editor_revision=spec.revision,
            seed=candidate.request.seed,
            settings_hash=self.planned.settings_hash,
            licence=spec.licence.name,
        )
        if isinstance(result, Failure):
            return row | {"status": "failed", "reason": result.reason, "error": result.message}
        record = json.dumps(dict(result.record), sort_keys=True, ensure_ascii=False)
        return row | {"image": images.stored(images.png(np.asarray(result.image))), "record": record, "metadata": result.metadata}

    def _count(self, results: Sequence[Result]) -> None:
        """Raise ``CrewFailed`` when too large a share of this process's edits has failed."""
        self.made["edits"] += len(results)
        failures = [result for result in results if isinstance(result, Failure)]
        self.made["failed"] += len(failures)
        if self.made["edits"] >= self.rules.after and self.made["failed"] > self.rules.share * self.made["edits"] and failures:
            raise CrewFailed(
                f"{self.planned.key}: {self.planned.name} stopped, since {self.made['failed']} of {self.made['edits']} edits failed, the "
                f"last with {failures[-1].message!r}; repair it, or allow more with generate.failures.share"
            )


def _ended(task: EditTask, hung: bool) -> Failure:
    if hung:
        return Failure("timed-out", f"alone, it took longer than {task.seconds:g} seconds {ENDS} times (generate.failures.seconds)")
    return Failure("ended-process", f"alone, it ended its process {ENDS} times, perhaps out of memory")


@contextmanager
def _ended_after(seconds: float) -> Generator[None]:
    """End this process, with a traceback of its threads on standard error, when the block takes longer. A thread without the interpreter's
    lock watches, so that code that never gives the lock back is ended, too."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__ or sys.stderr)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
