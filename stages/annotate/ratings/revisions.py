"""Revisions: an annotator may submit a group several times; only the latest submission counts.

In: the history in the rating page's database, and the histories that the ledger already has. Out: the replaced submissions. The rows of a
replaced submission stay in the ledger; :func:`counting` leaves them out. If the latest revision flags the group as unrateable, it has no
scores, so none count.

Revisions are ordered by number, which grows with the time of submission, not by time of ingest. Copies of a database may therefore be
ingested in any order, an old copy does not restore replaced ratings, and what is submitted after a backup was put back is the latest.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping

import pyarrow as pa
import pyarrow.compute as pc

from stages.annotate.ratings.delivery import Cell, ExistingRating, Revision


class Revisions:
    """All known histories."""

    def __init__(self, known: Iterable[Revision] = ()) -> None:
        self._of: dict[str, Revision] = {}
        self._latest: dict[tuple[str, str], int] = {}
        self.add(known)

    def add(self, delivered: Iterable[Revision]) -> list[Revision]:
        """Add a history; returns its new revisions."""
        new = [revision for revision in delivered if revision.submission not in self._of]
        for revision in new:
            key = revision.annotator_id, revision.group_id
            self._of[revision.submission] = revision
            self._latest[key] = max(revision.revision, self._latest.get(key, 0))
        return new

    def replaced(self, submission: str) -> bool:
        """Whether the same person has submitted the group again later."""
        revision = self._of.get(submission)
        return revision is not None and revision.revision < self._latest[revision.annotator_id, revision.group_id]

    def owner(self, submission: str) -> str | None:
        """The person who made a submission; None for an unknown one."""
        revision = self._of.get(submission)
        return None if revision is None else revision.annotator_id

    def withdraw(self, existing: MutableMapping[Cell, ExistingRating]) -> int:
        """Remove replaced ratings from ``existing``; returns their number."""
        replaced = [cell for cell, rating in existing.items() if self.replaced(rating.submission)]
        for cell in replaced:
            del existing[cell]
        return len(replaced)


def read(table: pa.Table) -> Revisions:
    """The histories of a ``revisions`` table."""
    return Revisions(Revision(**row) for row in table.to_pylist())


def counting(ratings: pa.Table, revisions: pa.Table) -> pa.Table:
    """The rows of a ``ratings`` table whose submission no later one in a ``revisions`` table replaces."""
    if not revisions.num_rows:
        return ratings
    known = read(revisions)
    replaced = [name for name in revisions["submission"].to_pylist() if known.replaced(name)]
    return ratings.filter(pc.invert(pc.is_in(ratings["submission"], pa.array(replaced, pa.string()))))
