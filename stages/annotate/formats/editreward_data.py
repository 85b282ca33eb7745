"""TIGER-Lab/EditReward-Data: a row per pair of edits, with both edits' scores per dimension (its data card; paper section 2).

In: Parquet files of the data set, or rows of it as JSON. Out: the ratings of both edits of every pair
(:mod:`stages.annotate.formats.published_pairs`). A source is a ``key``, a candidate a ``key`` with its ``left_img_rel`` or
``right_img_rel``; ``quality_aesthetic`` is our visual quality. All ratings have the annotator ``imported:EditReward-Data``.
"""

from __future__ import annotations

from stages.annotate.formats import published_pairs
from stages.annotate.formats.files import RatingFile
from stages.annotate.formats.published_pairs import Cells, Side
from stages.annotate.ratings.delivery import Delivery, ImportedDataset
from stages.annotate.ratings.rating_task import Scale
from stages.datasets.published_ids import PublishedId, of_editreward_data
from stages.engine.contracts import DIMENSIONS

FORMAT = "editreward-data"
ANNOTATOR = "imported:EditReward-Data"
SCORES = {"instruction_following": "instruction_following_score", "visual_quality": "quality_aesthetic_score"}
DATASET = ImportedDataset(FORMAT, DIMENSIONS, Scale(1, 4), split="train")


def _side(name: str) -> Side:
    image = f"{name}_img_rel"

    def made(row: Cells) -> PublishedId:
        return of_editreward_data(row["key"], row[image])

    scores = {dimension: f"{name}_{column}" for dimension, column in SCORES.items()}
    return Side(("key", image), made, "key", f"{name}_model", "instruction", scores)


SIDES = (_side("left"), _side("right"))
COLUMNS = tuple(dict.fromkeys(column for side in SIDES for column in side.columns))
"""Columns that are read."""


def recognises(file: RatingFile) -> bool:
    """Whether the columns are those of the data set."""
    return {column for side in SIDES for column in side.scores.values()} <= set(file.header)


def parse(file: RatingFile) -> Delivery:
    """The ratings of one file. Raises ``ValueError`` when a column is missing or is there twice, or when there is no row."""
    return published_pairs.parse(file, DATASET, ANNOTATOR, SIDES, "EditReward-Data")
