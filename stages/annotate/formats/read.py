"""The table of rating formats: a file of ratings in, a :class:`~stages.annotate.ratings.delivery.Delivery` out.

A format is a module of this folder with two functions: ``recognises(file) -> bool`` for ``auto``, and ``parse(file) -> Delivery``, which
raises ``ValueError`` for a file that cannot be read as a whole. A row that holds no rating becomes an invalid row. This module imports
nothing heavy, because the command line takes its choices from the table.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stages.annotate.ratings.delivery import Delivery

FORMATS = {
    "page": "page_database",  # SQLite database of the rating page
    "label-studio": "label_studio",  # Label Studio's JSON export
    "argilla": "argilla",  # Argilla's records as JSON or JSON Lines
    "editreward-data": "editreward_data",  # rows of TIGER-Lab/EditReward-Data as Parquet, JSON or JSON Lines
    "imagenhub": "imagenhub",  # ImagenHub's rater tables
    "wide": "wide",  # one row per candidate: CSV, TSV, JSON Lines, JSON list, Parquet
    "long": "long",  # one row per rating, in the same kinds of files
}
"""Module of this folder by format. ``auto`` takes the first format that recognises the file."""

AUTO = "auto"


def read(path: str | Path, format: str = AUTO) -> Delivery:
    """Parse a file. Raises ``ValueError`` naming the file, the place and what to do."""
    from stages.annotate.formats.files import RatingFile

    if format not in (AUTO, *FORMATS):
        raise ValueError(f"there is no rating format {format!r}; use one of {', '.join((AUTO, *FORMATS))}")
    file = RatingFile(path)
    modules = {name: import_module(f"stages.annotate.formats.{module}") for name, module in FORMATS.items() if format in (AUTO, name)}
    return next(module for module in modules.values() if format != AUTO or module.recognises(file)).parse(file)
