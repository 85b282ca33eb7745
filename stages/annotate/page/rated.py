"""The current ratings of the page as arrays, for the lead's statistics."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from stages.annotate.page.packet import Packet
from stages.annotate.ratings.rating_task import ADJUDICATION, RANKING


@dataclass(frozen=True)
class Rated:
    """One group rated by one person. scores: [candidate, dimension], candidates as in the packet; positions: on the page [candidate];
    seconds: of the whole group."""

    group: str
    annotator: str
    round: str
    scores: np.ndarray
    positions: np.ndarray
    seconds: float
    at: str


def read(connection: sqlite3.Connection, packet: Packet) -> list[Rated]:
    """Current ratings of whole groups on the scale, in the order of submission."""
    column = {dimension: i for i, dimension in enumerate(packet.dimensions)}
    place: dict[str, dict[str, int]] = {g: {c: i for i, c in enumerate(of.candidates)} for g, of in packet.groups.items()}
    found: dict[str, tuple[tuple[Any, ...], list[float], list[int]]] = {}
    rows = connection.execute(
        "SELECT l.submission_id, annotator, group_id, l.round, seconds_of_all, submitted_at, candidate_id, dimension, score, position "
        "FROM latest l JOIN scores USING (submission_id) WHERE l.flag IS NULL AND l.round NOT IN (?, ?) "
        "ORDER BY submitted_at, l.submission_id",
        (ADJUDICATION, RANKING),
    )
    for name, annotator, group, round, seconds, at, candidate, dimension, score, position in rows:
        places = place.get(group)
        if places is None:
            continue
        if name not in found:
            found[name] = (group, annotator, round, seconds, at), [0] * (len(places) * len(column)), [0] * len(places)
        _, scores, positions = found[name]
        scores[places[candidate] * len(column) + column[dimension]] = score
        positions[places[candidate]] = position
    return [
        Rated(group, annotator, round, np.array(scores, np.float64).reshape(-1, len(column)), np.array(positions, np.int16), seconds, at)
        for (group, annotator, round, seconds, at), scores, positions in found.values()
    ]


def table(groups: Sequence[Rated], packet: Packet) -> pa.Table:
    """The same as a ratings table for quality control. The seconds of a group are divided among its scores."""
    sizes = np.array([entry.scores.size for entry in groups], dtype=np.int64)
    count = len(packet.dimensions)

    def repeated(values: Iterable[Any], times: np.ndarray | int = sizes) -> pa.Array:
        texts = pa.array(list(values), pa.string())
        return texts.take(pa.array(np.repeat(np.arange(len(texts)), times)))

    return pa.table(
        {
            "source_id": repeated(entry.group for entry in groups),
            "candidate_id": repeated((c for entry in groups for c in packet.groups[entry.group].candidates), count),
            "annotator": repeated(entry.annotator for entry in groups),
            "dimension": pa.array(packet.dimensions, pa.string()).take(pa.array(np.tile(np.arange(count), sizes.sum() // count))),
            "score": np.concatenate([np.zeros(0), *(entry.scores.ravel() for entry in groups)]),
            "round": repeated(entry.round for entry in groups),
            "rated_at": repeated(entry.at for entry in groups),
            "seconds": np.repeat(np.array([round(entry.seconds / entry.scores.size, 3) for entry in groups]), sizes),
        }
    )


def adjudications(connection: sqlite3.Connection, schema: pa.Schema) -> pa.Table:
    """Scores of adjudicators in the columns of :func:`table`."""
    rows = connection.execute(
        "SELECT group_id AS source_id, candidate_id, annotator, dimension, score, round, submitted_at AS rated_at, seconds FROM ratings "
        "WHERE round = ? ORDER BY submitted_at, submission_id, position, dimension",
        (ADJUDICATION,),
    )
    return pa.Table.from_pylist([dict(row) | {"score": float(row["score"])} for row in rows], schema=schema)
