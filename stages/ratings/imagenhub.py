"""Adapter for ImagenHub's rater files: one tab-separated table of uid by editor per task and rater, cells ``[SC, PQ]``.

Semantic consistency and perceptual quality keep their own scale of 0, 0.5 and 1 and their own names (Ku et al., ImagenHub, ICLR 2024,
section 3). The files bring their own items: the union of what they rate. A group is one uid of one task; its candidates are the editors.
Task and rater come from the file's name, ``<task>_rater<number>.tsv``; whether rater 1 of two tasks is one person is not published, so
the annotator is ``<task>/rater<number>``.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import defaultdict
from collections.abc import Iterable

import pyarrow as pa

from stages import contracts
from stages.ids import content_id, settings_hash
from stages.ratings.delivery import Broken, Delivered, Delivery, Item
from stages.ratings.manifest import Manifest, Scale

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


def manifest(items: Iterable[Item], rubric_version: str) -> Manifest:
    """Manifest of the union of the items."""
    sampled: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for item in items:
        sampled[item.source_id][item.candidate_id] = None
    return Manifest(
        inputs={DATASET: settings_hash(DATASET, list(DIMENSIONS), SCALE.levels)},
        dimensions=DIMENSIONS,
        scale=SCALE,
        rubric_version=rubric_version,
        group_of={candidate: group for group, candidates in sampled.items() for candidate in candidates},
        sampled={group: tuple(candidates) for group, candidates in sampled.items()},
    )


def items_of(sources: pa.Table, candidates: pa.Table) -> list[Item]:
    """The items that :func:`tables` wrote."""
    of_source = {row["source_id"]: (row["task"], json.loads(row["metadata"])["uid"]) for row in sources.to_pylist()}
    return [Item(row["candidate_id"], row["source_id"], *of_source[row["source_id"]], row["editor"]) for row in candidates.to_pylist()]


def tables(items: Iterable[Item]) -> dict[str, pa.Table]:
    """The items as ``sources`` and ``candidates`` without images, each once; they belong to no training split."""
    sources = {
        item.source_id: {
            "source_id": item.source_id,
            "dataset": DATASET,
            "split": "validation",
            "group": item.source_id,
            "image": None,
            "instruction": "",
            "language": "",
            "task": item.task,
            "metadata": json.dumps({"uid": item.uid}),
        }
        for item in items
    }
    candidates = {
        item.candidate_id: {
            "candidate_id": item.candidate_id,
            "source_id": item.source_id,
            "editor": item.editor,
            "editor_revision": "",
            "seed": 0,
            "settings_hash": "",
            "image": None,
            "status": "ok",
            "error": "",
            "annotate": True,
            "metadata": "{}",
        }
        for item in items
    }
    rows = {"sources": sources, "candidates": candidates}
    return {name: contracts.table(name, list(by_id.values())) for name, by_id in rows.items()}
