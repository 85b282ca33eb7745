"""A run whose generate step is made by hand, without Ray: what the tests of annotation and preferences start from."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from stages.annotate.config import AnnotateConfig, SimulatedRaters
from stages.annotate.ratings.rating_task import RatingTask, generated_task
from stages.config import FlowConfig
from stages.context import Context
from stages.engine import contracts
from stages.engine.cluster import Cluster
from stages.engine.config import RayConfig
from stages.engine.ids import content_id, uniform
from stages.engine.rundir import Index, RunDir
from stages.engine.units import publish_unit

EDITORS = ("world/quill", "world/bobbin", "world/trowel")


def _picture(form: str, number: int, place: int) -> bytes:
    """A file of one colour that no other (number, place) has."""
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), (number % 256, number // 256, 30 * place)).save(buffer, form, quality=100)
    return buffer.getvalue()


def source(number: int, **changes: Any) -> dict[str, Any]:
    """A row of sources; every fifth is for validation."""
    row = {
        "source_id": content_id("source", number),
        "dataset": "world",
        "benchmark": "",
        "licence": "",
        "split": "validation" if number % 5 == 4 else "train",
        "group": content_id("group", number),
        "image": {"bytes": _picture("PNG", number, 0), "path": None},
        "instruction": f"make object {number} größer",
        "language": "en",
        "task": ("resize", "remove")[number % 2],
        "metadata": "{}",
    }
    return row | changes


def candidates(number: int) -> list[dict[str, Any]]:
    """Two candidates per editor, with ground-truth quality."""
    return [
        contracts.candidate(
            candidate_id=content_id("candidate", number, place),
            source_id=content_id("source", number),
            editor=EDITORS[place // 2],
            editor_revision="revision-7",
            seed=place % 2,
            settings_hash="settings",
            image={"bytes": _picture("PNG" if place % 2 else "JPEG", number, place + 1), "path": None},
            metadata=json.dumps(_ground_truth(number, place)),
        )
        for place in range(6)
    ]


def drawn(number: int) -> list[dict[str, Any]]:
    """The candidates that are to be rated: the first three and the last."""
    rows = [{name: row[name] for name in ("source_id", "candidate_id")} for row in candidates(number)]
    return [row for place, row in enumerate(rows) if place not in (3, 4)]


def _ground_truth(number: int, place: int) -> dict[str, Any]:
    """Quality of an edit, and its flaws, which follow from it."""
    levels = {name: 1 + int(4 * uniform(name, number, place)) for name in contracts.DIMENSIONS}
    return levels | {f"{name}_flaw": ("no-op", "half", "ghost", "none")[level - 1] for name, level in levels.items()}


def make_run(path: Path, groups: int = 6, sources: Sequence[dict[str, Any]] | None = None, seed: int = 0, **annotate: Any) -> Context:
    """A run with a done generate step; annotate: settings of annotation."""
    config = AnnotateConfig(**({"simulate": SimulatedRaters(overlap=0.5)} | annotate))
    context = Context(RunDir(path), FlowConfig(name="test", seed=seed, annotate=config), Cluster(RayConfig()))
    folder = context.run.step("generate")
    rows = list(sources) if sources is not None else [source(number) for number in range(groups)]
    tables = {
        "sources": contracts.table("sources", rows),
        "candidates": contracts.table("candidates", [row for number in range(len(rows)) for row in candidates(number)]),
        "drawn": contracts.table("drawn", [row for number in range(len(rows)) for row in drawn(number)]),
    }
    parts = publish_unit(folder.path, "unit", tables)
    folder.publish(Index("generate", "key", {}, {}, artifacts={name: [part] for name, part in parts.items()}))
    return context


def rating_task_of(context: Context) -> RatingTask:
    return generated_task(context)


def ratings_of(
    work: RatingTask, annotator: str = "ann", groups: Sequence[str] | None = None, score: int | None = None, **changes: Any
) -> list[dict[str, Any]]:
    """Rows of the canonical long format: groups rated whole. Without score, a sound one that depends on the row."""
    return [
        {
            "group_id": group,
            "candidate_id": candidate,
            "dimension": dimension,
            "annotator_id": annotator,
            "score": score or 1 + int(4 * uniform(candidate, dimension, annotator)),
            "rated_at": "2025-03-31T14:05:00+02:00",
        }
        | changes
        for group in (groups if groups is not None else work.sampled)
        for candidate in work.sampled[group]
        for dimension in work.dimensions
    ]


def write_csv(path: Path, rows: Sequence[dict[str, Any]], delimiter: str = ",") -> Path:
    """Rows as CSV with the columns of the first; cells with the delimiter are quoted."""
    columns = list(rows[0])
    cells = [columns, *([str(row[column]) for column in columns] for row in rows)]
    quoted = [
        ['"' + cell.replace('"', '""') + '"' if any(c in cell for c in (delimiter, '"', "\n")) else cell for cell in line] for line in cells
    ]
    path.write_text("".join(delimiter.join(line) + "\n" for line in quoted), encoding="utf-8")
    return path
