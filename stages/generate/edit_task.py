"""The payload of a unit of edits: which candidates are to be made, and what is known of those whose process ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow.parquet as pq

from stages.editors.editor import Failure
from stages.generate.journal import Journal

ENDS = 2
"""A candidate that has ended so many processes alone has failed."""
Places = tuple[int, ...]
"""Places of candidates in their unit: by source, then by seed."""


@dataclass(frozen=True)
class Retry:
    """A candidate that is made again. ``new_seed``: 0 with the seed of the plan, else with its first new one, its second, and so on.
    ``failures``: how often it has failed. ``flagged``: the edits with other seeds before, each with its seed and flags."""

    candidate_id: str
    new_seed: int = 0
    failures: int = 0
    flagged: tuple[tuple[int, tuple[str, ...]], ...] = ()

    def after_failure(self) -> Retry:
        """Once more with the same seed."""
        return replace(self, failures=self.failures + 1)

    def after_flags(self, seed: int, flags: Sequence[str]) -> Retry:
        """With the next seed, since the edit with this one is flagged."""
        return replace(self, new_seed=self.new_seed + 1, flagged=(*self.flagged, (seed, tuple(flags))))

    def record(self) -> dict[str, Any]:
        """What the record of the candidate says of it."""
        return {"flagged_seeds": {str(seed): list(flags) for seed, flags in self.flagged}} if self.flagged else {}


@dataclass(frozen=True)
class EditTask:
    """Candidates, so many ``rows``, of the sources in a table. ``span``: the first source and how many; None: all. ``retries``: these
    candidates only, made again; None: all of the plan. ``seconds``: after which an edit counts as hanging. ``deaths``: how many processes
    ended while these candidates were in work, in this command, and whether the last took too long."""

    sources: str
    rows: int
    journal: str
    seconds: float
    span: tuple[int, int] | None = None
    retries: tuple[Retry, ...] | None = None
    deaths: dict[Places, tuple[int, bool]] = field(default_factory=dict)

    def sources_with(self, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        """These columns of the sources in their order. One row group is in memory."""
        with pq.ParquetFile(self.sources) as table:
            first, count = self.span or (0, table.metadata.num_rows)
            begins = 0
            for group in range(table.num_row_groups):
                rows = table.metadata.row_group(group).num_rows
                left, right = max(first - begins, 0), min(first + count - begins, rows)
                if left < right:
                    yield from table.read_row_group(group, columns=list(columns)).slice(left, right - left).to_pylist()
                begins += rows

    def after_death(self) -> EditTask | None:
        """The task with one more death (:class:`stages.engine.fatal_rows.Recording`). A death counts once: the next may be of loading."""
        journal = Journal(self.journal)
        places, since = journal.begun()
        if not places:
            return None
        journal.begin(())
        count, _ = self.deaths.get(places, (0, False))
        return replace(self, deaths=self.deaths | {places: (count + 1, since >= self.seconds * len(places))})

    def ended(self, hung: bool) -> Failure:
        """What a candidate is that ended its process ``ENDS`` times alone."""
        if hung:
            return Failure("timed-out", f"alone, it took longer than {self.seconds:g} seconds {ENDS} times (generate.failures.seconds)")
        return Failure("ended-process", f"alone, it ended its process {ENDS} times, perhaps out of memory")
