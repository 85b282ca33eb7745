"""ImagenHub's rater files: one tab-separated table of uid by editor per task and rater, cells ``[SC, PQ]``.

Semantic consistency and perceptual quality keep their own scale of 0, 0.5 and 1 and their own names (Ku et al., ImagenHub, ICLR 2024,
section 3). The items are imported: a group is one uid of one task, its candidates are the editors. Task and rater come from the file's
name, ``<task>_rater<number>.tsv``. Whether rater 1 of two tasks is one person is not published, so the annotator is
``<task>/rater<number>``.
"""

from __future__ import annotations

import csv
import io
import re

from stages.annotate.formats.files import RatingFile
from stages.annotate.ratings.delivery import Delivery, ImportedDataset, ImportedItem, InvalidRow, RawRating
from stages.annotate.ratings.rating_task import Scale
from stages.engine.ids import content_id

DIMENSIONS = ("semantic_consistency", "perceptual_quality")
DATASET = ImportedDataset("imagenhub", DIMENSIONS, Scale(0.0, 1.0, 0.5), split="validation")

_NAME = re.compile(r"(?P<task>.+)_(?P<rater>rater\d+)\.tsv")
_CELL = re.compile(r"\[\s*([^,\]]*?)\s*,\s*([^,\]]*?)\s*\]")


def recognises(file: RatingFile) -> bool:
    """Never: the format must be named, because the file's name decides who rated what."""
    return False


def parse(file: RatingFile) -> Delivery:
    """The ratings of one rater file. Raises ``ValueError`` when the name or the first line is not ImagenHub's."""
    name = file.name
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"{name}: an ImagenHub rater file must be named <task>_rater<number>.tsv, which says whose ratings it contains")
    lines = csv.reader(io.StringIO(file.text, newline=""), delimiter="\t", quoting=csv.QUOTE_NONE)
    header = [cell.strip() for cell in next(lines)]
    if header[:1] != ["uid"] or len(header) < 2 or len(set(header)) < len(header):
        raise ValueError(f"{name} line 1: expected 'uid' and then the names of the editors, each once, separated by tabs; found {header}")
    task, annotator = match["task"], f"{match['task']}/{match['rater']}"
    rows: list[RawRating] = []
    invalid: list[InvalidRow] = []
    items: list[ImportedItem] = []
    for number, cells in enumerate(lines, start=2):
        if not any(cells):
            continue
        if len(cells) != len(header):
            invalid.append(InvalidRow(number, "field-count", f"the row has {len(cells)} fields where the first line has {len(header)}"))
            continue
        uid = cells[0].strip()
        source_id = content_id("imagenhub source", task, uid)
        for editor, cell in zip(header[1:], cells[1:], strict=True):
            candidate_id = content_id("imagenhub candidate", task, uid, editor)
            scores = _CELL.fullmatch(cell.strip())
            items.append(ImportedItem(candidate_id, source_id, task, uid, editor))
            rows += [
                RawRating(number, source_id, candidate_id, dimension, annotator, scores[i] if scores else cell.strip())
                for i, dimension in enumerate(DIMENSIONS, start=1)
            ]
    if not rows and not invalid:
        raise ValueError(f"{name} has no ratings: it contains only the names of the editors")
    return Delivery(name, file.sha256, DATASET.name, "line", rows, invalid, items=items, dataset=DATASET, named=True)
