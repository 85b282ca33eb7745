"""Format ``scores-text``: lines of group, candidate, dimension, annotator and score, separated by spaces."""

from __future__ import annotations

from stages.annotate.formats.files import RatingFile
from stages.annotate.ratings.delivery import Delivery, RawRating


def recognises(file: RatingFile) -> bool:
    """Whether the file ends in ``.scores``."""
    return file.suffix == ".scores"


def parse(file: RatingFile) -> Delivery:
    """One rating per line."""
    rows = [RawRating(number, *line.split()) for number, line in enumerate(file.text.splitlines(), start=1)]
    return Delivery(file.name, file.sha256, "scores-text", "line", rows)
