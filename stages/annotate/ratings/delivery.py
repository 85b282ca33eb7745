"""What a file delivers, before anything is believed: every rating as text, with the line it came from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    pass

REQUIRED = ("group_id", "candidate_id", "dimension", "annotator_id", "score")
OPTIONAL = ("rated_at", "round", "seconds", "comment", "rubric_version", "submission", "project", "scale_min", "scale_max")
COLUMNS = REQUIRED + OPTIONAL
"""Columns of the canonical long format: one row per candidate, dimension, annotator and round."""

SCORES_GIVEN = "scores_given"
"""Column of the adjudication queue: what is to be settled, for the eyes of the adjudicator; no rating is read from it."""

DIMENSION_ALIASES = {"if": "instruction_following", "vq": "visual_quality"}


class Delivered(NamedTuple):
    """One rating as text; an absent column is an empty text. ``number`` is the line (or record) of the file."""

    number: int
    group_id: str
    candidate_id: str
    dimension: str
    annotator_id: str
    score: str
    rated_at: str = ""
    round: str = ""
    seconds: str = ""
    comment: str = ""
    rubric_version: str = ""
    submission: str = ""
    project: str = ""
    scale_min: str = ""
    scale_max: str = ""


class Broken(NamedTuple):
    """A line that is no row at all."""

    number: int
    reason: str
    message: str


class Revision(NamedTuple):
    """One of the things that somebody said about a group; of one person and group the highest ``revision`` counts."""

    submission: str
    group_id: str
    annotator_id: str
    revision: int


def separated(found: Iterable[Delivered | Broken]) -> tuple[list[Delivered], list[Broken]]:
    """The ratings and what is none, each in its order."""
    rows: list[Delivered] = []
    broken: list[Broken] = []
    for one in found:
        if isinstance(one, Delivered):
            rows.append(one)
        else:
            broken.append(one)
    return rows, broken


class Item(NamedTuple):
    """An item that a file itself introduces: an edit of ``uid`` by an editor in a task."""

    candidate_id: str
    source_id: str
    task: str
    uid: str
    editor: str
    instruction: str = ""


@dataclass(frozen=True)
class Delivery:
    """A parsed file. ``counts_in`` says what its numbers count: lines of text, records of a list, or rows of a table. ``revisions``: all
    that was ever said about the groups of the file, where it knows."""

    file: str
    sha256: str
    format: str
    counts_in: str
    rows: Sequence[Delivered]
    broken: Sequence[Broken] = ()
    warnings: Sequence[str] = ()
    items: Sequence[Item] = ()
    revisions: Sequence[Revision] = ()

    @property
    def ratings(self) -> int:
        """Ratings delivered: a wide row counts once per dimension, a line that is no row counts once."""
        return len(self.rows) + len(self.broken)

    def at(self, number: int) -> str:
        """Position of a row, for people."""
        return f"{self.file} {self.counts_in} {number}"


Cell = tuple[str, str, str, str]
"""candidate, dimension, annotator, round: a rater says one thing there."""


class Said(NamedTuple):
    """What was said in a cell."""

    score: float
    time: str
    submission: str
