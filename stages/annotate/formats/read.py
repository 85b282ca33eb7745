"""The table of rating formats: a file of ratings in, a :class:`~stages.annotate.ratings.delivery.Delivery` out.

A format is a module of this folder with two functions: ``recognises(file) -> bool`` for ``auto``, and ``parse(file) -> Delivery``, which
raises ``ValueError`` for a file that cannot be read as a whole. A row that contains no rating becomes an invalid row. This module imports
nothing heavy, because the command line takes its choices from the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from stages.annotate.ratings.delivery import Delivery


class Format(NamedTuple):
    """A module of this folder, and the description of the format on the command line."""

    module: str
    description: str


FORMATS = {
    "page": Format("page_database", "the rating page's database"),
    "label-studio": Format("label_studio", "Label Studio's JSON export"),
    "argilla": Format("argilla", "Argilla's records as JSON or JSON Lines"),
    "editreward-data": Format("editreward_data", "rows of TIGER-Lab/EditReward-Data as Parquet or JSON"),
    "reference-json": Format("reference_json", "the training JSON of the public EditReward code"),
    "imagenhub": Format("imagenhub", "ImagenHub's rater tables, never recognised by auto"),
    "wide": Format("wide", "a table with a row per candidate"),
    "long": Format("long", "a table with a row per rating"),
}
"""Formats by name. ``auto`` takes the first one that recognises the file."""

AUTO = "auto"


def read(path: str | Path, format: str = AUTO, dimensions: Sequence[str] | None = None) -> Delivery:
    """Parse a file. dimensions: of the task, default ours. Raises ``ValueError`` naming the file, the place and what to do."""
    from stages.annotate.formats.files import RatingFile
    from stages.engine.contracts import DIMENSIONS

    if format not in (AUTO, *FORMATS):
        raise ValueError(f"there is no rating format {format!r}; use one of {', '.join((AUTO, *FORMATS))}")
    file = RatingFile(path, DIMENSIONS if dimensions is None else dimensions)
    names = FORMATS if format == AUTO else [format]
    modules = (import_module(f"stages.annotate.formats.{FORMATS[name].module}") for name in names)
    return next(module for module in modules if format != AUTO or module.recognises(file)).parse(file)
