"""Adapter for ImagenHub's rater files: one tab-separated table of uid by editor per task and rater, cells ``[SC, PQ]``.

Semantic consistency and perceptual quality keep their own scale of 0, 0.5 and 1 and their own names (Ku et al., ImagenHub, ICLR 2024,
section 3). The files bring their own items: the union of what they rate. A group is one uid of one task; its candidates are the editors.
Task and rater come from the file's name, ``<task>_rater<number>.tsv``; whether rater 1 of two tasks is one person is not published, so
the annotator is ``<task>/rater<number>``.
"""

from __future__ import annotations

import csv
import io
import re

from stages.annotate.ratings.delivery import Broken, Delivered, Delivery, Item
from stages.annotate.ratings.manifest import Scale
from stages.engine.ids import content_id

DIMENSIONS = ("semantic_consistency", "perceptual_quality")
SCALE = Scale(0.0, 1.0, 0.5)
DATASET = "imagenhub"

_NAME = re.compile(r"(?P<task>.+)_(?P<rater>rater\d+)\.tsv")
_CELL = re.compile(r"\[\s*([^,\]]*?)\s*,\s*([^,\]]*?)\s*\]")


def parse(name: str, text: str, sha256: str) -> Delivery:
    """The ratings of one rater file. Raises ``ValueError`` when the name or the first line is not ImagenHub's."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"{name}: an ImagenHub rater file is named <task>_rater<number>.tsv, which says whose ratings it holds")
    lines = csv.reader(io.StringIO(text, newline=""), delimiter="\t", quoting=csv.QUOTE_NONE)
    header = [cell.strip() for cell in next(lines)]
    if header[:1] != ["uid"] or len(header) < 2 or len(set(header)) < len(header):
        raise ValueError(f"{name} line 1: expected 'uid' and then the names of the editors, each once, separated by tabs; found {header}")
    task, annotator = match["task"], f"{match['task']}/{match['rater']}"
    rows: list[Delivered] = []
    broken: list[Broken] = []
    items: list[Item] = []
    for number, cells in enumerate(lines, start=2):
        if not any(cells):
            continue
        if len(cells) != len(header):
            broken.append(Broken(number, "field-count", f"the row has {len(cells)} fields where the first line has {len(header)}"))
            continue
        uid = cells[0].strip()
        source_id = content_id("imagenhub source", task, uid)
        for editor, cell in zip(header[1:], cells[1:], strict=True):
            candidate_id = content_id("imagenhub candidate", task, uid, editor)
            scores = _CELL.fullmatch(cell.strip())
            items.append(Item(candidate_id, source_id, task, uid, editor))
            rows += [
                Delivered(number, source_id, candidate_id, dimension, annotator, scores[i] if scores else cell.strip())
                for i, dimension in enumerate(DIMENSIONS, start=1)
            ]
    if not rows and not broken:
        raise ValueError(f"{name} has no ratings: it holds only the names of the editors")
    return Delivery(name, sha256, DATASET, "line", rows, broken, items=items)
