"""Decontamination: what the edits were compared with, and how many of them match. Part of the filter's section."""

from __future__ import annotations

from typing import Any

from pipeline.report import words
from pipeline.report.blocks import Block, Heading, Paragraph, Table
from pipeline.report.published import Published

STEP = "filter"
COUNTS = {
    "image": "A source that matches counts as contamination; equal instructions alone are only listed.",
    "image-and-instruction": "A source that matches counts as contamination where the instruction is the same too.",
    "image-or-instruction": "A source or an instruction that matches counts as contamination.",
}


def blocks(published: Published) -> list[Block]:
    """A sentence and a table of references; nothing for a run that did not compare."""
    found: dict[str, Any] = published.results(STEP).get("contamination", {})
    if not found or (found["training"] == "off" and not found["references"]):
        return []
    near = "Sources are compared by their bytes." if found["distance"] is None else _near(found["distance"])
    fate = (
        f"{words.count(found['dropped'])} edits were dropped; they count as gated."
        if found["action"] == "drop"
        else f"{words.count(found['samples'])} edits count, and were kept."
    )
    unknown = " The model does not say what it was trained on." if found["training"].startswith("not") else ""
    paragraph = Paragraph(f"{near} {COUNTS[found['counts']]} {fate}{unknown} Each match is in the artifact contamination.")
    columns = ("Reference", "Items", "Unreadable", "Exact image", "Near image", "Instruction alone", "Edits that count")
    rows = [
        (name, *(words.count(entry[key]) for key in ("items", "unreadable", "exact image", "near image", "instruction", "samples")))
        for name, entry in found["references"].items()
    ]
    caption = "Edits by kind of match, each once per reference and kind."
    return [Heading("Known from elsewhere"), paragraph, *([Table(columns, rows, caption)] if rows else [])]


def _near(distance: int) -> str:
    return f"Sources are compared by their bytes and by perceptual hashes, which may differ in {distance} of 64 bits."
