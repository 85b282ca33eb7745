"""Galleries of scored edits: best, worst, most uncertain, and both sides of the cut, each as source, edited image and difference."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ValidationError

from pipeline import words
from pipeline.report import scored_edits
from pipeline.report.blocks import Block, Callout, Example, Fold, Heading, Paragraph, Section, Tab, Tabs
from pipeline.report.published import Published
from pipeline.report.scored_edits import ScoredEdits
from pipeline.report.sections.filtering import STEP, note, selected_tables
from pipeline.report.triptychs import GAIN, triptych
from stages.engine import tables
from stages.engine.rundir import StepFolder
from stages.filter.selection import rule as selection
from stages.filter.selection import stored
from stages.filter.selection.config import SelectionConfig
from stages.filter.selection.order import first
from stages.filter.selection.scored_rows import ScoredRows

STEPS = (STEP,)
BEST = "Best"
GALLERY = 12
SHOWN_OPEN = 4


def section(published: Published) -> Section:
    """One tab per gallery of at most ``GALLERY`` edits, with the configuration's remark on these scores above them."""
    edits = scored_edits.read(published)
    if edits is None:
        return Section("galleries", "Galleries", "", [])
    tabs = [
        Tab(title, [*offset(edits, title), *(block for name, ids in parts.items() for block in _gallery(published, edits, name, ids))])
        for title, parts in _orders(published, edits, selected_tables(published)).items()
    ]
    remark: list[Block] = [Callout(note(published), "")] if note(published) else []
    known = [*(["ground truth"] if edits.good is not None else []), *(["predicted rating"] if edits.likert else [])]
    scale = f"On the raters’ scale: {words.listing(known)}. " if known else ""
    lead = (
        f"The score has no unit; ± is its σ. {scale}"
        f"In the difference (×{GAIN}), dark parts have changed. A click on an image shows it in full size."
    )
    return Section("galleries", "Galleries", lead, [*remark, Tabs("galleries", tabs)])


def offset(edits: ScoredEdits, title: str) -> list[Paragraph]:
    """A paragraph above the best edits: which task they are of, where one prevails, because scores of different tasks need not compare."""
    tasks = edits.strata.get("task")
    if title != BEST or tasks is None:
        return []
    order = first(-edits.overall, edits.table["sample_id"], GALLERY)
    counts = np.bincount(tasks.codes[order])
    most = int(np.argmax(counts))
    among = float((tasks.codes == most).mean())
    if counts[most] / len(order) < max(0.5, 2 * among):
        return []
    name = words.name(tasks.names[most]) or "(empty)"
    text = (
        f"{counts[most]} of the best {len(order)} are of the task {name}, which is {words.percent(among)} of all scored edits. "
        "Training compares edits of one source only, so the scores of different tasks have different zero points. Among the "
        "best they rank tasks as much as edits; a selection with quotas by task does not mix them."
    )
    return [Paragraph(text)]


def _gallery(published: Published, edits: ScoredEdits, title: str, ids: Sequence[str]) -> list[Block]:
    columns = ["sample_id", "source", "edited", "instruction", "metadata"]
    kept = published.table(STEP, "examples", columns, where=("sample_id", ids))
    rows = {row["sample_id"]: row for row in kept.to_pylist()} if kept else {}
    shown = [name for name in ids if name in rows]
    places = pc.index_in(pa.array(shown, pa.string()), value_set=edits.table["sample_id"].combine_chunks())
    scored = edits.table.take(places).to_pylist()
    examples = [_example(published, rows[name], scores) for name, scores in zip(shown, scored, strict=True)]
    blocks: list[Block] = [*([Heading(title)] if title else []), *examples[:SHOWN_OPEN]]
    if examples[SHOWN_OPEN:]:
        blocks.append(Fold(f"{len(examples) - SHOWN_OPEN} more", examples[SHOWN_OPEN:]))
    absent = len(ids) - len(shown)
    if absent:
        blocks.append(Paragraph(f"The images of {absent} of these {len(ids)} edits are not stored in this run."))
    return blocks


def _example(published: Published, row: Mapping[str, Any], scores: Mapping[str, Any]) -> Example:
    known = json.loads(row["metadata"]) if scored_edits.knows_truth(published) else {}
    truth = {entry["dimension"]: known[entry["dimension"]] for entry in scores["dimensions"] if entry["dimension"] in known}
    return triptych(row, scores, published.originals, truth)


def _orders(published: Published, edits: ScoredEdits, selections: Mapping[str, pa.Table]) -> dict[str, dict[str, Sequence[str]]]:
    """Sample ids by tab and by the title of a part of it."""
    ids = edits.table["sample_id"]
    sigma = edits.table["overall_sigma"].to_numpy()
    keys = {BEST: -edits.overall, "Worst": edits.overall, "Most uncertain": -sigma}
    orders: dict[str, dict[str, Sequence[str]]] = {name: {"": _first(key, ids)} for name, key in keys.items()}
    main = selection.main(_configured(published))
    if main is not None and main.name in selections:
        just_in, just_out = _around_cut(published, main)
        parts: dict[str, Sequence[str]] = {f"Just above the cut: the lowest-ranked edits that “{main.name}” keeps": just_in}
        orders["At the cut"] = parts | ({f"Just below the cut: the best edits that “{main.name}” leaves out": just_out} if just_out else {})
    return orders


def _first(key: np.ndarray, ids: pa.ChunkedArray) -> list[str]:
    return ids.take(first(key, ids, GALLERY)).to_pylist()


def _around_cut(published: Published, main: SelectionConfig) -> tuple[list[str], list[str]]:
    """The ids around the cut of a selection, as in the step's examples."""
    with tempfile.TemporaryDirectory() as folder, tables.opened(folder) as database:
        rows = ScoredRows.of(database, StepFolder(published.path / STEP, STEP), published.index(STEP).artifacts)
        return selection.around_cut(rows, main, published.path / STEP / stored.table_name(main.name), GALLERY)


def _configured(published: Published) -> list[SelectionConfig]:
    """The configured selections; none where the step was made by a version with other settings."""
    entries = published.settings(STEP).get("filter", {}).get("selections", [])
    try:
        return [SelectionConfig.model_validate(entry) for entry in entries]
    except ValidationError:
        return []
