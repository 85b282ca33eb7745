"""The payload of a unit of edits: which candidates are to be made, and what is known of those whose process ended."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from stages.editors.editor import Failure
from stages.generate.journal import Journal

ENDS = 2
"""A candidate that has ended so many processes alone has failed."""
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
