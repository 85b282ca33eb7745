"""Revisions: what somebody said about a group, and said anew later; of several only the latest counts.

In: the history that the rating page's database delivers with its ratings, and the histories that the ledger holds from before. Out: which
submissions have been replaced. Nothing is removed for it: rows of a replaced submission keep their place in the ledger, and
:func:`standing` leaves them out. A latest revision that says that the group cannot be rated brings no scores, so none count.

A revision is known by its number, so the order in which copies of a database are ingested does not matter, and an old copy brings nothing
back.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping

import pyarrow as pa
import pyarrow.compute as pc

from stages.annotate.ratings.delivery import Cell, Revision, Said


class Revisions:
    """The histories known so far."""

    def __init__(self, known: Iterable[Revision] = ()) -> None:
        self._of: dict[str, Revision] = {}
        self._latest: dict[tuple[str, str], int] = {}
        self.add(known)

    def add(self, delivered: Iterable[Revision]) -> list[Revision]:
        """Take a history in; returns what was new of it."""
        new = [revision for revision in delivered if revision.submission not in self._of]
        for revision in new:
            key = revision.annotator_id, revision.group_id
            self._of[revision.submission] = revision
            self._latest[key] = max(revision.revision, self._latest.get(key, 0))
        return new

    def replaced(self, submission: str) -> bool:
        """Whether the same person has said something later about the group of this submission."""
        revision = self._of.get(submission)
        return revision is not None and revision.revision < self._latest[revision.annotator_id, revision.group_id]

    def withdraw(self, said: MutableMapping[Cell, Said]) -> int:
        """Drop what was replaced from what people have said; returns how many ratings that is."""
        gone = [cell for cell, one in said.items() if self.replaced(one.submission)]
        for cell in gone:
            del said[cell]
        return len(gone)


def read(table: pa.Table) -> Revisions:
    """The histories of a ``revisions`` table."""
    return Revisions(Revision(**row) for row in table.to_pylist())


def standing(ratings: pa.Table, revisions: pa.Table) -> pa.Table:
    """The rows of a ``ratings`` table (with the column ``submission``) that count by a ``revisions`` table."""
    if not revisions.num_rows:
        return ratings
    known = read(revisions)
    replaced = [name for name in revisions["submission"].to_pylist() if known.replaced(name)]
    return ratings.filter(pc.invert(pc.is_in(ratings["submission"], pa.array(replaced, pa.string()))))
