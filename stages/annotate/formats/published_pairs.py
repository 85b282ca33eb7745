"""Published data sets with a row per pair of edits that repeats the scores of both: what their formats share.

An edit is in many pairs with the same scores: its first scores are its rating, later ones are duplicates, and other scores are a conflict.
The raters are not published, so all ratings of a data set have one annotator and never count as agreement. Images are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from stages.annotate.formats.files import RatingFile
from stages.annotate.ratings.delivery import Delivery, ImportedDataset, ImportedItem, InvalidRow, RawRating
from stages.datasets.published_ids import PublishedId

Cells = Mapping[str, str]
"""Cells of a row by column."""


class Side(NamedTuple):
    """One of the two edits of a row. names: the columns that name it; uid: the source's name; scores: column by dimension."""

    names: tuple[str, ...]
    made: Callable[[Cells], PublishedId]
    uid: str
    editor: str
    instruction: str
    scores: Mapping[str, str]

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that are read."""
        return (*self.names, self.uid, self.editor, self.instruction, *self.scores.values())


def parse(file: RatingFile, dataset: ImportedDataset, annotator: str, sides: tuple[Side, Side], published_as: str) -> Delivery:
    """The ratings of a file, with its items and comparisons. ``published_as``: name of the data set in messages.

    Raises ``ValueError`` when a column is missing or is there twice, or when there is no row.
    """
    columns = list(dict.fromkeys(column for side in sides for column in side.columns))
    twice = [column for column in columns if list(file.header).count(column) > 1]
    if twice:
        raise ValueError(f"{file.name} has {list(file.header).count(twice[0])} columns {twice[0]}; rename or remove all but one")
    table = file.table(needed=columns, only=[column for column in file.header if column in columns])
    missing = [column for column in columns if column not in table.header]
    if missing:
        raise ValueError(f"{file.name} lacks the column {missing[0]} of {published_as} (it has {', '.join(table.header) or 'none'})")
    if not table.rows:
        raise ValueError(f"{file.name} has no ratings: it contains no pair")
    rows: list[RawRating] = []
    invalid = list(table.invalid)
    items: dict[str, ImportedItem] = {}
    compared: dict[tuple[str, str], None] = {}
    for number, cells in table.rows:
        row = dict(zip(table.header, cells, strict=True))
        edits: list[str] = []
        for side in sides:
            empty = [name for name in side.names if not row[name]]
            if empty:
                invalid += [InvalidRow(number, "item-unnamed", f"the row has no {empty[0]}")] * len(side.scores)
                continue
            edit = side.made(row)
            edits.append(edit.candidate)
            item = ImportedItem(edit.candidate, edit.source, "", row[side.uid], row[side.editor], row[side.instruction])
            items.setdefault(edit.candidate, item)
            rows += [
                RawRating(number, edit.source, edit.candidate, dimension, annotator, row[column].strip())
                for dimension, column in side.scores.items()
            ]
        if len(set(edits)) == 2:
            compared[min(edits), max(edits)] = None
    found = list(items.values())
    return Delivery(
        file.name, file.sha256, dataset.name, table.counts_in, rows, invalid, items=found, dataset=dataset, compared=[*compared]
    )
