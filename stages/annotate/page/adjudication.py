"""The disputed cells that an adjudicator is asked for.

In: the database, the plan. Each export adds cells to a group. A cell has one adjudicator: others are asked for the rest. An adjudication
that lacks a cell is not done, so its group is assigned again, with the scores that were given.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

from stages.annotate.page.packet import Packet
from stages.annotate.ratings.rating_task import ADJUDICATION

Cells = dict[tuple[str, str], Sequence[float]]
"""Scores that were given before, by candidate and dimension."""

_LATEST = (
    "SELECT c.candidate_id, c.dimension FROM submissions s JOIN scores c USING (submission_id) "
    "WHERE s.group_id = :group AND s.round = :round AND (s.annotator = :who) = :own AND s.revision = "
    "(SELECT max(revision) FROM submissions t WHERE t.annotator = s.annotator AND t.group_id = s.group_id)"
)


def asked(connection: sqlite3.Connection, packet: Packet, annotator: str, group_id: str) -> Cells:
    """Cells of a group that this person is shown: those that nobody else has adjudicated, and the person's own."""
    own, others = (_scored(connection, annotator, group_id, own=own) for own in (True, False))
    return {cell: given for cell, given in packet.cells(group_id, ADJUDICATION).items() if cell in own or cell not in others}


def submitted(connection: sqlite3.Connection, annotator: str, group_id: str) -> set[tuple[str, str]]:
    """Cells of this person's latest adjudication of a group."""
    return _scored(connection, annotator, group_id, own=True)


def update_done(connection: sqlite3.Connection, packet: Packet, groups: Iterable[str]) -> None:
    """Set whether the adjudications of these groups are done. Groups that cannot be rated or are in another round stay as they are."""
    for group in groups:
        if packet.plan.rounds.get(group) != ADJUDICATION:
            continue
        rows = connection.execute("SELECT annotator, done FROM assignments WHERE group_id = ? AND round = ?", (group, ADJUDICATION))
        for row in rows.fetchall():
            own = submitted(connection, row["annotator"], group)
            done = own.issuperset(asked(connection, packet, row["annotator"], group))
            if own and done != row["done"]:
                connection.execute(  # a lease that has expired: this person gets it next, or another adjudicator takes the other cells
                    "UPDATE assignments SET done = ?, lease_ends = 1 WHERE annotator = ? AND group_id = ?", (done, row["annotator"], group)
                )


def _scored(connection: sqlite3.Connection, annotator: str, group_id: str, *, own: bool) -> set[tuple[str, str]]:
    rows = connection.execute(_LATEST, {"group": group_id, "round": ADJUDICATION, "who": annotator, "own": own})
    return {(row["candidate_id"], row["dimension"]) for row in rows}
