"""TIGER-Lab/EditReward-Data: a row per pair of edits, with both edits' scores per dimension (its data card; paper section 2).

In: Parquet files of the data set, or rows of it as JSON. Out: the ratings of both edits of every pair, with imported items. A source is a
``key``, a candidate a ``key`` with its ``left_img_rel`` or ``right_img_rel``; ``quality_aesthetic`` is our visual quality. An edit is in
many pairs with the same scores: its first scores are its rating, later ones are duplicates, and other scores are a conflict. The raters
are not published: all ratings have the annotator ``imported:EditReward-Data``, so that they never count as agreement. Images are not read.
"""

from __future__ import annotations

from stages.annotate.formats.files import RatingFile
from stages.annotate.ratings.delivery import Delivery, ImportedDataset, ImportedItem, InvalidRow, RawRating
from stages.annotate.ratings.rating_task import Scale
from stages.engine.contracts import DIMENSIONS
from stages.engine.ids import content_id

FORMAT = "editreward-data"
ANNOTATOR = "imported:EditReward-Data"
SCORES = {"instruction_following": "instruction_following_score", "visual_quality": "quality_aesthetic_score"}
SIDES = ("left", "right")
COLUMNS = (
    "key",
    "instruction",
    *(f"{side}_{column}" for side in SIDES for column in ("img_rel", "model", *SCORES.values())),
)
"""Columns that are read."""
DATASET = ImportedDataset(FORMAT, DIMENSIONS, Scale(1, 4), split="train")


def recognises(file: RatingFile) -> bool:
    """Whether the columns are those of the data set."""
    return {f"{side}_{score}" for side in SIDES for score in SCORES.values()} <= set(file.header)


def parse(file: RatingFile) -> Delivery:
    """The ratings of one file. Raises ``ValueError`` when a column is missing or there is no row."""
    name, table = file.name, file.table(needed=COLUMNS, only=[column for column in file.header if column in COLUMNS])
    missing = [column for column in COLUMNS if column not in table.header]
    if missing:
        raise ValueError(f"{name} lacks the column {missing[0]} of EditReward-Data (it has {', '.join(table.header) or 'none'})")
    if not table.rows:
        raise ValueError(f"{name} has no ratings: it contains no pair")
    index = {column: table.header.index(column) for column in COLUMNS}
    rows: list[RawRating] = []
    invalid = list(table.invalid)
    items: dict[str, ImportedItem] = {}
    for number, cells in table.rows:
        key = cells[index["key"]]
        source_id = content_id("EditReward-Data source", key)
        for side in SIDES:
            image = cells[index[f"{side}_img_rel"]]
            if not key or not image:
                invalid += [InvalidRow(number, "item-unnamed", f"the row has no {'key' if not key else f'{side}_img_rel'}")] * len(SCORES)
                continue
            candidate_id = content_id("EditReward-Data candidate", key, image)
            items.setdefault(
                candidate_id, ImportedItem(candidate_id, source_id, "", key, cells[index[f"{side}_model"]], cells[index["instruction"]])
            )
            rows += [
                RawRating(number, source_id, candidate_id, dimension, ANNOTATOR, cells[index[f"{side}_{score}"]].strip())
                for dimension, score in SCORES.items()
            ]
    return Delivery(name, file.sha256, FORMAT, table.counts_in, rows, invalid, items=list(items.values()), dataset=DATASET)
