"""Adapter for TIGER-Lab/EditReward-Data: a row per pair of edits, with both edits' scores per dimension (its data card; paper section 2).

In: Parquet files of the data set, or rows of it as JSON. Out: the ratings of both edits of every pair; the rows bring their own items. A
source is a ``key``, a candidate a ``key`` with its ``left_img_rel`` or ``right_img_rel``; ``quality_aesthetic`` is our visual quality. An
edit stands in many pairs with the same scores: the first is its rating, the rest are duplicates, and another score there is a conflict.
Who rated is not published: everything has the one annotator ``imported:EditReward-Data``, so that nothing is taken for agreement. Images
are not read.
"""

from __future__ import annotations

from collections.abc import Collection

from stages.annotate.formats.files import Table
from stages.annotate.ratings.delivery import Broken, Delivered, Delivery, Item
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


def recognises(header: Collection[str]) -> bool:
    """Whether the columns are those of the data set."""
    return {f"{side}_{score}" for side in SIDES for score in SCORES.values()} <= set(header)


def parse(table: Table, name: str, sha256: str) -> Delivery:
    """The ratings of one file. Raises ``ValueError`` when a column is missing or there is no row."""
    missing = [column for column in COLUMNS if column not in table.header]
    if missing:
        raise ValueError(f"{name} lacks the column {missing[0]} of EditReward-Data (it has {', '.join(table.header) or 'none'})")
    if not table.rows:
        raise ValueError(f"{name} has no ratings: it holds no pair")
    place = {column: table.header.index(column) for column in COLUMNS}
    rows: list[Delivered] = []
    broken = list(table.broken)
    items: dict[str, Item] = {}
    for number, cells in table.rows:
        key = cells[place["key"]]
        source_id = content_id("EditReward-Data source", key)
        for side in SIDES:
            image = cells[place[f"{side}_img_rel"]]
            if not key or not image:
                broken += [Broken(number, "item-unnamed", f"the row has no {'key' if not key else f'{side}_img_rel'}")] * len(SCORES)
                continue
            candidate_id = content_id("EditReward-Data candidate", key, image)
            items.setdefault(
                candidate_id, Item(candidate_id, source_id, "", key, cells[place[f"{side}_model"]], cells[place["instruction"]])
            )
            rows += [
                Delivered(number, source_id, candidate_id, dimension, ANNOTATOR, cells[place[f"{side}_{score}"]].strip())
                for dimension, score in SCORES.items()
            ]
    return Delivery(name, sha256, FORMAT, table.counts_in, rows, broken, items=list(items.values()))
