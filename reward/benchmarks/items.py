"""Items of benchmarks: edits to score, people's comparisons and ratings of them, and the model's scores.

An edit that occurs in many comparisons is one edit: it is named by the content of its source, instruction and result, and scored once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from reward.benchmarks.pictures import CONTENT_DIGITS, Picture, read
from reward.inputs.sample import EditSample

OVERALL = "overall"
"""Name of a model's aggregate where a dimension is asked for."""


@dataclass(frozen=True)
class BenchmarkEdit:
    """A source, what was asked, and one result."""

    source: Picture
    instruction: str
    edited: Picture

    @cached_property
    def edit_id(self) -> str:
        """Name made of content."""
        parts = "\0".join((self.source.content, self.edited.content, self.instruction))
        return hashlib.sha256(parts.encode()).hexdigest()[:CONTENT_DIGITS]


@dataclass(frozen=True)
class Comparison:
    """Two edits that people compared. label: 1 first is better, -1 second is better, 0 a tie.

    source: what intervals and folds keep together. group: comparisons that count only together. kind: a part of the benchmark that has a
    figure of its own. dimension: what was compared.
    """

    item_id: str
    first: BenchmarkEdit
    second: BenchmarkEdit
    label: int
    source: str
    group: str = ""
    kind: str = ""
    dimension: str = OVERALL

    @property
    def edits(self) -> tuple[BenchmarkEdit, ...]:
        """The edits to score."""
        return self.first, self.second


@dataclass(frozen=True)
class Rating:
    """One edit and the score that people gave it. editor: whose edit it is; source: what intervals keep together; raters: the scores that
    it is the mean of, where they are known.
    """

    item_id: str
    edit: BenchmarkEdit
    score: float
    editor: str
    source: str
    raters: tuple[float, ...] = ()

    @property
    def edits(self) -> tuple[BenchmarkEdit, ...]:
        """The edit to score."""
        return (self.edit,)


Item = Comparison | Rating


@dataclass(frozen=True)
class EditScore:
    """A model's scores of an edit. change: how far the edit is from its source (larger is farther); None where it was not measured."""

    overall: float
    dimensions: Mapping[str, float]
    change: float | None = None

    def value(self, dimension: str) -> float:
        """The aggregate, or a dimension's score."""
        return self.overall if dimension == OVERALL else self.dimensions[dimension]


Scores = Mapping[str, EditScore]
"""By edit_id. An edit that is not in it could not be scored: it counts as a failure, never as absent."""


def distinct(items: Iterable[Item]) -> list[BenchmarkEdit]:
    """Every edit once, in the order of first occurrence."""
    return list({edit.edit_id: edit for item in items for edit in item.edits}.values())


def samples(edits: Sequence[BenchmarkEdit]) -> list[EditSample]:
    """Edits with their images, as the model scores them."""
    images = read([picture for edit in edits for picture in (edit.source, edit.edited)])
    return [EditSample(images[edit.source.content], edit.instruction, images[edit.edited.content]) for edit in edits]


def margins(comparisons: Sequence[Comparison], scores: Scores, dimension: str = OVERALL) -> np.ndarray:
    """[comparison]: score of the first minus that of the second; NaN where one of them has no score."""
    return np.array([_value(scores, item.first, dimension) - _value(scores, item.second, dimension) for item in comparisons])


def predictions(ratings: Sequence[Rating], scores: Scores) -> np.ndarray:
    """[rating]: the overall score; NaN where the edit has none."""
    return np.array([_value(scores, item.edit, OVERALL) for item in ratings])


def _value(scores: Scores, edit: BenchmarkEdit, dimension: str) -> float:
    found = scores.get(edit.edit_id)
    return float("nan") if found is None else found.value(dimension)
