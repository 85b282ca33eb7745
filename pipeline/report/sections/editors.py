"""What generate made: sources by benchmark, and for every editor its candidates, flags, and how its edits lie against their sources."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pipeline import words
from pipeline.report import near_duplicates
from pipeline.report.blocks import Block, Paragraph, Section, Table
from pipeline.report.published import Published

STEPS = ("generate",)
STEP = "generate"
LEAD = (
    "Every editor of the plan: its candidates, what failed, what the output checks flag, and how the edits lie against their sources. An "
    "editor that shifts or zooms changes what nobody asked it to change."
)


def section(published: Published) -> Section:
    """Nothing where no editor ran here."""
    figures: Sequence[Mapping[str, Any]] = published.results(STEP).get("editors", [])
    blocks: list[Block] = []
    if figures:
        blocks += [_made(figures), *_geometry(published), *_sources(published)]
    return Section("editors", "Candidate editors", LEAD, blocks)


def _made(figures: Sequence[Mapping[str, Any]]) -> Table:
    rows = [
        (
            _name(entry),
            entry["licence"],
            _counts(entry["failed"]),
            _counts(entry["flagged"]),
            words.count(entry["per_source"]),
            words.count(entry["made"]),
            words.count(entry["drawn"]),
        )
        for entry in figures
    ]
    columns = ("Editor", "Licence", "Failed", "Flagged", "Per source", "Made", "Drawn for annotation")
    return Table(columns, rows, "Flagged candidates that are kept; those that are dropped count as failed.", text_columns=4)


def _name(entry: Mapping[str, Any]) -> str:
    """An editor may be listed several times: its settings that differ from its authors' tell them apart."""
    changed = ", ".join(f"{name} {value}" for name, value in entry["settings"].items())
    return f"{entry['name']} ({changed})" if changed else entry["name"]


def _geometry(published: Published) -> list[Block]:
    """Shift and zoom of the edits, and the padding of their canvas, by editor."""
    table = published.table(STEP, "candidates", ["editor", "status", "record"])
    records: dict[str, list[dict[str, Any]]] = {}
    for row in table.to_pylist() if table else []:
        if row["status"] == "ok":
            records.setdefault(row["editor"], []).append(json.loads(row["record"]))
    rows = [_geometry_row(editor, found) for editor, found in records.items() if any(record.get("shift") for record in found)]
    if not rows:
        return []
    columns = ("Editor", "Measured", "Shift, median", "Shift, 95 %", "Zoom, median", "Zoom, 95 %", "Padded")
    caption = (
        "Shift in pixels of the source; zoom in per cent of the size, whether larger or smaller. Measured: edits in which enough of the "
        "source is left to tell. Padded: mean share of the canvas beside the source."
    )
    return [Table(columns, rows, caption)]


def _geometry_row(editor: str, records: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    measured = [record for record in records if record.get("shift")]
    shifts = [float(np.hypot(*record["shift"])) for record in measured]
    zooms = [100 * abs(record["zoom"] - 1) for record in measured]
    padded = [record["padded"] for record in records if "padded" in record]
    quantiles = [f"{np.quantile(values, share):.2f}" for values in (shifts, zooms) for share in (0.5, 0.95)]
    counted = f"{words.count(len(measured))} of {words.count(len(records))}"
    return editor, counted, *quantiles, words.share(float(np.mean(padded))) if padded else "–"


def _sources(published: Published) -> list[Block]:
    """Which sources are items of benchmarks, and which images are near duplicates."""
    said = []
    near = published.results(STEP).get("near_duplicates", {})
    if near.get("merged") or near.get("across_declared_splits"):
        said += near_duplicates.sentences(near)
    table = published.table(STEP, "sources", ["benchmark"])
    marks = Counter(name for name in (table["benchmark"].to_pylist() if table else []) if name)
    if marks:
        listed = words.listing([f"{words.count(count)} of {name}" for name, count in sorted(marks.items())])
        said.append(f"Sources that are items of benchmarks: {listed}. A reward model that is trained on them has seen these benchmarks.")
    return [Paragraph(" ".join(said))] if said else []


def _counts(found: Mapping[str, int]) -> str:
    return ", ".join(f"{words.name(reason)} {words.count(count)}" for reason, count in found.items()) or "–"
