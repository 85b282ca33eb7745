"""Rows that could not be processed, by step and reason, with examples."""

from __future__ import annotations

from pipeline import words
from pipeline.flow import STEP_NAMES
from pipeline.report.blocks import Block, Fold, Section, Table
from pipeline.report.published import Published

STEPS = STEP_NAMES
EXAMPLES = 5


def section(published: Published) -> Section:
    """A table of reasons, and the first rows of each."""
    found = [(step, reason, count) for step in STEP_NAMES for reason, count in published.index(step).quarantined.items()]
    if not found:
        return Section("quarantine", "Quarantine", "", [])
    rows = [(step, reason, words.count(count)) for step, reason, count in found]
    blocks: list[Block] = [Table(("Step", "Reason", "Rows"), rows, text_columns=2)]
    blocks += [_examples(published, step) for step in STEP_NAMES if published.index(step).quarantined]
    return Section(
        "quarantine",
        "Quarantine",
        "Rows that could not be processed. They are kept with a reason and are not part of any number on this page.",
        blocks,
    )


def _examples(published: Published, step: str) -> Fold:
    table = published.table(step, "quarantine", ["row_id", "position", "reason", "message"])
    rows: list[tuple[str, str, str]] = []
    taken: dict[str, int] = {}
    for row in table.to_pylist() if table else []:
        taken[row["reason"]] = taken.get(row["reason"], 0) + 1
        if taken[row["reason"]] <= EXAMPLES:
            rows.append((row["reason"], row["position"] or row["row_id"], row["message"]))
    title = f"{step}: where and why (up to {EXAMPLES} per reason)"
    return Fold(title, [Table(("Reason", "Where", "Message"), sorted(rows), text_columns=3)])
