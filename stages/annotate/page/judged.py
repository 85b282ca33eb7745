"""The judgement of the page's ratings and the queues as quality control makes them, computed again only after a further submission."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from stages.annotate.config import AnnotateConfig
from stages.annotate.page import rated
from stages.annotate.page.packet import Packet
from stages.annotate.page.rated import Rated
from stages.annotate.quality.judgement import Judgement, is_accepted, judge
from stages.annotate.quality.queues import DisputedCell, QueuedGroup, queues
from stages.annotate.ratings.groups import raters_of


@dataclass(frozen=True)
class Judged:
    """groups: all ratings; judgement: None before the first rating and where quality control refuses, with the reason in ``problem``;
    queued, disputed: the re-annotation queue and the adjudication queue."""

    groups: Sequence[Rated]
    judgement: Judgement | None = None
    problem: str = ""
    queued: Sequence[QueuedGroup] = ()
    disputed: Sequence[DisputedCell] = ()


class JudgedRatings:
    """The latest judgement; one is computed at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: tuple[int, Packet] | None = None
        self._latest = Judged([])

    def of(self, connection: sqlite3.Connection, packet: Packet, config: AnnotateConfig) -> Judged:
        """The judgement of the ratings in the database."""
        with self._lock:
            (submissions,) = connection.execute("SELECT coalesce(max(rowid), 0) FROM submissions").fetchone()
            if self._of is None or self._of[0] != submissions or self._of[1] is not packet:
                self._latest = _judged(connection, packet, config)
                self._of = submissions, packet
            return self._latest


def _judged(connection: sqlite3.Connection, packet: Packet, config: AnnotateConfig) -> Judged:
    groups = rated.read(connection, packet)
    if not groups:
        return Judged(groups)
    task, scores = packet.task, rated.table(groups, packet)
    gold = packet.plan.gold_of(packet.plan.gold)
    try:
        judgement = judge(scores, task.scale.levels, config.quality, seed=packet.plan.seed, gold=gold)
    except ValueError as error:
        return Judged(groups, problem=f"`pipeline annotate qc` would refuse these ratings: {error}")
    every = pa.concat_tables([scores, rated.adjudications(connection, scores.schema)])
    accepted = every.filter(is_accepted(every, judgement.screening))
    return Judged(groups, judgement, "", *queues(accepted, raters_of(scores), task, config.quality.reannotate))
