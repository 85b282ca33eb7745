"""A parsed rating file before validation: every rating as text, with its line number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stages.annotate.ratings.rating_task import Scale

REQUIRED = ("group_id", "candidate_id", "dimension", "annotator_id", "score")
OPTIONAL = ("rated_at", "round", "seconds", "comment", "rubric_version", "submission", "project", "scale_min", "scale_max")
COLUMNS = REQUIRED + OPTIONAL
"""Columns of the canonical long format: one row per candidate, dimension, annotator and round."""

SCORES_GIVEN = "scores_given"
"""Column of the adjudication queue that shows the adjudicator the disputed scores. Ingest ignores it."""

DIMENSION_ALIASES = {"if": "instruction_following", "vq": "visual_quality"}


def spelled(name: str) -> str:
    """A dimension, or another column, as we spell it."""
    return DIMENSION_ALIASES.get(name.lower(), name.lower())


class RawRating(NamedTuple):
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


class InvalidRow(NamedTuple):
    """A line that contains no rating."""

    number: int
    reason: str
    message: str


class Revision(NamedTuple):
    """One submission of an annotator for a group. The submission with the highest ``revision`` counts."""

    submission: str
    group_id: str
    annotator_id: str
    revision: int


class ImportedItem(NamedTuple):
    """An imported candidate: an edit of ``uid`` by an editor in a task."""

    candidate_id: str
    source_id: str
    task: str
    uid: str
    editor: str
    instruction: str = ""


class ImportedDataset(NamedTuple):
    """Properties of a data set whose rating files contain their own items; ``split`` is that of its sources."""

    name: str
    dimensions: tuple[str, ...]
    scale: Scale
    split: str


@dataclass(frozen=True)
class Delivery:
    """A parsed file.

    counts_in: unit of the row numbers: line of text, record of a list, or row of a table. items: candidates of ``dataset``, which is None
    for ratings of the run's own candidates. revisions: history of the file's groups, where the file has one. named: whether the file name
    is part of the content, because it says who rated what. means: whether scores are means over raters, which lie between the levels of
    the scale. compared: candidates of every pair that the file compares, each pair once and the smaller id first, where a row is a pair.
    """

    file: str
    sha256: str
    format: str
    counts_in: str
    rows: Sequence[RawRating]
    invalid: Sequence[InvalidRow] = ()
    warnings: Sequence[str] = ()
    items: Sequence[ImportedItem] = ()
    dataset: ImportedDataset | None = None
    revisions: Sequence[Revision] = ()
    named: bool = False
    means: bool = False
    compared: Sequence[tuple[str, str]] = ()

    @property
    def ratings(self) -> int:
        """Number of ratings in the file. A wide row counts once per dimension, an invalid row once."""
        return len(self.rows) + len(self.invalid)

    def at(self, number: int) -> str:
        """Position of a row, for messages."""
        return f"{self.file} {self.counts_in} {number}"


Cell = tuple[str, str, str, str]
"""candidate, dimension, annotator, round; a rater gives one score per cell."""


class ExistingRating(NamedTuple):
    """The rating of a cell that counts in the ledger."""

    score: float
    time: str
    submission: str
