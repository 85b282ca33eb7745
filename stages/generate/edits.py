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
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from reward.inputs.decoding import decode
from stages.config import FlowConfig
from stages.editors.editing import Editing, Result
from stages.editors.editor import Edited, EditRequest, Failure
from stages.engine import contracts, images
from stages.engine.dispatch import CrewFailed
from stages.engine.prefetch import prefetch
from stages.engine.units import UnitOutput
from stages.generate.candidate_plan import PlannedEditor, drawn_seed, planned
from stages.generate.config import FailureRules
from stages.generate.journal import Journal
from stages.generate.outputs import Judged, Outputs

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


class _Made(NamedTuple):
    """A candidate and what was made of it. ``again``: the request with another seed, where that was needed, after those ``tried``: the
    flags of their edits by seed."""

    candidate: _Candidate
    result: Result | Judged
    again: EditRequest | None = None
    tried: Mapping[str, list[str]] = MappingProxyType({})

    @property
    def request(self) -> EditRequest:
        """The one that the result is of."""
        return self.again or self.candidate.request


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
        self.outputs = Outputs(flow.generate.outputs)
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
        """Make what is not in the journal. A thread checks, encodes and keeps a batch while the next is edited."""
        with ThreadPoolExecutor(1) as thread, closing(prefetch(self._candidates(task), AHEAD * self.planned.count)) as candidates:
            settling: Future[list[_Made]] | None = None
            for batch, known in self._parts(candidates, task, journal):
                journal.begin([candidate.place for candidate in batch])
                started = time.monotonic()
                results = known or self._edited([candidate.request for candidate in batch], task.seconds)
                figures["edits"] += len(batch)
                figures["seconds"] += time.monotonic() - started
                if settling is not None:
                    self._settle(settling.result(), task, journal)
                settling = thread.submit(self._keep, list(map(_Made, batch, results)), journal)
            if settling is not None:
                self._settle(settling.result(), task, journal)

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

    def _edited(self, requests: Sequence[EditRequest], seconds: float) -> list[Result]:
        with _ended_after(seconds * len(requests)):
            return self.editing.edit(requests)

    def _keep(self, batch: list[_Made], journal: Journal) -> list[_Made]:
        """Put a batch whose edits are checked into the journal, unless one of them is to be made again with another seed."""
        judged = [self._judged(made) for made in batch]
        if not any(isinstance(made.result, Judged) and made.result.policy == "new-seed" for made in judged):
            self._write(judged, journal)
        return judged

    def _judged(self, made: _Made) -> _Made:
        if isinstance(made.result, Edited):
            made = made._replace(result=self.outputs.judge(made.request, made.result))
        if isinstance(made.result, Judged) and made.result.policy == "drop":
            made = made._replace(result=made.result.failure)
        return made

    def _settle(self, batch: list[_Made], task: EditTask, journal: Journal) -> None:
        """Make again what is flagged, and count the failures of the batch. Raises ``CrewFailed`` when too many have failed."""
        again = [made for made in batch if isinstance(made.result, Judged) and made.result.policy == "new-seed"]
        if again:
            batch = [self._with_new_seeds(made, task, journal) if made in again else made for made in batch]
            self._write(batch, journal)
        self._count([made.result for made in batch if isinstance(made.result, Failure)], len(batch))

    def _with_new_seeds(self, made: _Made, task: EditTask, journal: Journal) -> _Made:
        """The edit with the first seed whose edit is not flagged; a failure when there is none. Every seed is a hash of the planned one."""
        tried: dict[str, list[str]] = {}
        for number in range(1, self.outputs.config.new_seeds + 1):
            assert isinstance(made.result, Judged)
            tried[str(made.request.seed)] = made.result.flags
            planned_seed = made.candidate.request.seed
            seed = drawn_seed(
                self.run_seed, made.candidate.source_id, self.planned.spec.name, self.planned.settings_hash, planned_seed, number
            )
            request = replace(made.request, seed=seed)
            journal.begin([made.candidate.place])
            (result,) = self._edited([request], task.seconds)
            made = self._judged(made._replace(result=result, again=request, tried=tried))
            if not isinstance(made.result, Judged) or made.result.policy == "keep":
                return made
        assert isinstance(made.result, Judged)
        return made._replace(result=made.result.failure)

    def _write(self, batch: Sequence[_Made], journal: Journal) -> None:
        journal.write(batch[0].candidate.place, [self._row(made) for made in batch])

    def _row(self, made: _Made) -> dict[str, Any]:
        """Row of the ``candidates`` contract; that of an edit that failed has the reason and no image."""
        spec = self.planned.spec
        row = contracts.candidate(
            candidate_id=self.planned.candidate_id(made.candidate.source_id, made.candidate.request.seed),
            source_id=made.candidate.source_id,
            editor=spec.name,
            editor_revision=spec.revision,
            seed=made.request.seed,
            settings_hash=self.planned.settings_hash,
            licence=spec.licence.name,
        )
        if isinstance(made.result, Failure):
            return row | {"status": "failed", "reason": made.result.reason, "error": made.result.message}
        assert isinstance(made.result, Judged), "every edit is checked"
        edited = made.result.edited
        record = dict(edited.record) | made.result.measures | ({"flagged_seeds": made.tried} if made.tried else {})
        return row | {
            "image": images.stored(images.png(np.asarray(edited.image))),
            "flags": made.result.flags,
            "record": json.dumps(record, sort_keys=True, ensure_ascii=False),
            "metadata": edited.metadata,
        }

    def _count(self, failures: Sequence[Failure], edits: int) -> None:
        """Raise ``CrewFailed`` when too large a share of this process's edits has failed."""
        self.made["edits"] += edits
        self.made["failed"] += len(failures)
        if failures and self.made["edits"] >= self.rules.after and self.made["failed"] > self.rules.share * self.made["edits"]:
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
