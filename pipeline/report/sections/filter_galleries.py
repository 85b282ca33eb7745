"""Galleries of edits: best, worst, most uncertain, and both sides of the cut, each as source, edited image and difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ValidationError

from pipeline import words
from pipeline.report.blocks import Block, Callout, Fold, Gallery, Heading, Paragraph
from pipeline.report.published import Published
from pipeline.report.scored_edits import ScoredEdits
from pipeline.report.triptychs import triptych
from stages.filter.selection import rule as selection
from stages.filter.selection.config import SelectionConfig
from stages.filter.selection.order import first, fixed_width

GALLERY = 12
SHOWN_OPEN = 4


def galleries(published: Published, edits: ScoredEdits, selections: Mapping[str, pa.Table], remark: str) -> list[Block]:
    """Five galleries of at most ``GALLERY`` edits; ``remark`` is shown above each of them."""
    orders = _orders(published, edits, selections)
    columns = ["sample_id", "source", "edited", "instruction"]
    kept = published.table("filter", "examples", columns, where=("sample_id", {name for ids in orders.values() for name in ids}))
    images = {row["sample_id"]: row for row in kept.to_pylist()} if kept else {}
    # rows of the score table, in the order of ``images``
    places = pc.index_in(pa.array([*images], pa.string()), value_set=edits.table["sample_id"].combine_chunks())
    facts = {row["sample_id"]: words.scores(row) for row in edits.table.take(places).to_pylist()}
    blocks: list[Block] = []
    for title, ids in orders.items():
        strips = [triptych(images[name], facts[name]) for name in ids if name in images]
        blocks.append(Heading(title))
        if remark:
            blocks.append(Callout(remark, ""))
        if strips:
            blocks.append(Gallery(strips[:SHOWN_OPEN]))
        if strips[SHOWN_OPEN:]:
            blocks.append(Fold(f"{len(strips) - SHOWN_OPEN} more", [Gallery(strips[SHOWN_OPEN:])]))
        absent = len(ids) - len(strips)
        if absent:
            blocks.append(Paragraph(f"The images of {absent} of these {len(ids)} edits are not stored in this run."))
    return blocks


def _orders(published: Published, edits: ScoredEdits, selections: Mapping[str, pa.Table]) -> dict[str, Sequence[str]]:
    """Sample ids per gallery."""
    ids = fixed_width(edits.table["sample_id"])
    sigma = edits.table["overall_sigma"].to_numpy()
    keys = {"Best by score": -edits.overall, "Worst by score": edits.overall, "Most uncertain, largest σ": -sigma}
    orders: dict[str, Sequence[str]] = {name: _first(key, ids) for name, key in keys.items()}
    main = selection.main(_configured(published))
    if main is not None and main.name in selections:
        just_in, just_out = selection.around_cut(edits.table, main, selections[main.name], GALLERY)
        orders |= {f"Just above the cut: the lowest-ranked edits that “{main.name}” keeps": just_in}
        orders |= {f"Just below the cut: the best edits that “{main.name}” leaves out": just_out} if just_out else {}
    return orders


def _first(key: np.ndarray, ids: np.ndarray) -> list[str]:
    return [name.decode() for name in ids[first(key, ids, min(GALLERY, len(ids)))].tolist()]


def _configured(published: Published) -> list[SelectionConfig]:
    """The configured selections; none where the step was made by a version with other settings."""
    entries = published.settings("filter").get("filter", {}).get("selections", [])
    try:
        return [SelectionConfig.model_validate(entry) for entry in entries]
    except ValidationError:
        return []
