"""Contamination: the references that edits, or sources to be trained on, were compared with, and how many match. Part of other sections."""

from __future__ import annotations

from typing import Any

from pipeline import words
from pipeline.report.blocks import Block, Fold, Paragraph, Table
from pipeline.report.published import Published

SHOWN = 20
COUNTS = {
    "image": "A source that matches counts as contamination; equal instructions alone are only listed.",
    "image-and-instruction": "A source that matches counts as contamination where the instruction is the same too.",
    "image-or-instruction": "A source or an instruction that matches counts as contamination.",
}


def blocks(published: Published, step: str, what: str, fate_of_dropped: str) -> list[Block]:
    """A sentence and a table of references; nothing for a run that did not compare.

    step: the one that compared; what: that it compared, in the plural; fate_of_dropped: what became of those that were dropped.
    """
    found: dict[str, Any] = published.results(step).get("contamination", {})
    if not found or (found["training"] == "off" and not found["references"]):
        return []
    near = "Sources are compared by their bytes." if found["distance"] is None else _near(found["distance"])
    fate = (
        f"{words.count(found['dropped'])} {what} were dropped; {fate_of_dropped}."
        if found["action"] == "drop"
        else f"{words.count(found['samples'])} {what} count as contaminated; they were flagged and kept."
        if found["samples"]
        else f"No {what.removesuffix('s')} counts as contaminated."
    )
    unknown = " The reward model does not record what it was trained on." if found["training"].startswith("not") else ""
    paragraph = Paragraph(f"{near} {COUNTS[found['counts']]} {fate}{unknown} Each match is in the artifact contamination.")
    columns = ("Reference", "Items", "Unreadable", "Exact image", "Near image", "Instruction alone", f"Contaminated {what}")
    rows = [
        (name, *(words.count(entry[key]) for key in ("items", "unreadable", "exact image", "near image", "instruction", "samples")))
        for name, entry in found["references"].items()
    ]
    caption = f"{what.capitalize()} by kind of match, each once per reference and kind."
    return [paragraph, *([Table(columns, rows, caption)] if rows else []), *_matches(published, step)]


def _matches(published: Published, step: str) -> list[Block]:
    """The first matches that count."""
    hits = published.table(step, "contamination", ["sample_id", "reference", "item", "match", "distance", "counted"])
    counted = [hit for hit in hits.to_pylist() if hit["counted"]] if hits else []
    if not counted:
        return []
    rows = [
        (hit["sample_id"], hit["reference"], hit["item"], hit["match"], "–" if hit["distance"] is None else words.count(hit["distance"]))
        for hit in counted[:SHOWN]
    ]
    columns = ("Id", "Reference", "Item", "Match", "Bits apart")
    return [Fold(f"The first {len(rows)} of {words.count(len(counted))} matches that count", [Table(columns, rows, text_columns=4)])]


def _near(distance: int) -> str:
    return f"Sources are compared by their bytes and by perceptual hashes, which may differ in {distance} of 64 bits."
