"""The training JSON of the public EditReward code (its TRAIN_README): a record per pair, the preferred edit first.

In: a JSON list as ``pipeline export pairs --format reference-json`` writes it. Out: the ratings of both edits of every pair
(:mod:`stages.annotate.formats.published_pairs`). A source is a ``path_src`` with its ``prompt``, a candidate that with its ``path1`` or
``path2``; dim1 is instruction following and dim2 visual quality. The scores may be means over raters, so any number of the scale is valid.
The order of a record's edits is not read: it follows from the scores, and of a tie there are two records with opposite orders. All ratings
have the annotator ``imported:reference-json``.
"""

from __future__ import annotations

from dataclasses import replace

from stages.annotate.formats import published_pairs
from stages.annotate.formats.files import RatingFile
from stages.annotate.formats.published_pairs import Cells, Side
from stages.annotate.ratings.delivery import Delivery, ImportedDataset
from stages.annotate.ratings.rating_task import Scale
from stages.datasets.published_ids import PublishedId, of_reference_json
from stages.engine.contracts import DIMENSIONS

FORMAT = "reference-json"
ANNOTATOR = "imported:reference-json"
DATASET = ImportedDataset(FORMAT, DIMENSIONS, Scale(1, 4), split="train")


def _side(number: int) -> Side:
    def made(row: Cells) -> PublishedId:
        return of_reference_json(row["path_src"], row["prompt"], row[f"path{number}"])

    scores = {dimension: f"model{number}_dim{place}_score" for place, dimension in enumerate(DIMENSIONS, start=1)}
    return Side(("path_src", "prompt", f"path{number}"), made, "path_src", f"model{number}", "prompt", scores)


SIDES = (_side(1), _side(2))


def recognises(file: RatingFile) -> bool:
    """Whether the keys are those of the training JSON."""
    return {column for side in SIDES for column in side.columns} <= set(file.header)


def parse(file: RatingFile) -> Delivery:
    """The ratings of one file. Raises ``ValueError`` when a key is missing, or when there is no record."""
    return replace(published_pairs.parse(file, DATASET, ANNOTATOR, SIDES, "the training JSON"), means=True)
