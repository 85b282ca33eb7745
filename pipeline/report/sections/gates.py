"""The gates before scoring: measured values, thresholds and numbers of edits caught. Part of the filter's section."""

from __future__ import annotations

from typing import Any

from pipeline import words
from pipeline.report.blocks import Block, Paragraph, Table
from pipeline.report.published import Published
from stages.filter.gates.config import GATES

STEP = "filter"


def blocks(published: Published) -> list[Block]:
    """A table of gates; nothing for a run without them."""
    found: dict[str, dict[str, Any]] = published.results(STEP).get("gates", {})
    if not found:
        return []
    named = {name: found[name] for name in GATES if name in found}
    rows = [_row(name, gate) for name, gate in named.items() if gate["action"] != "off"]
    off = [words.name(name) for name, gate in named.items() if gate["action"] == "off"]
    counts = published.index(STEP).counts
    text = (
        f"In {words.count(counts['in'])} = scored {words.count(counts['out'])} + quarantined {words.count(counts['quarantined'])} + "
        f"gated {words.count(counts['gated'])}. A gate that flags keeps what it catches. An edit can be caught by several gates; dropped "
        "counts it once, at the first that drops."
    )
    columns = ("Gate", "Catches", "Action", "Threshold", "Measured", "5 %", "Median", "95 %", "Caught", "Dropped")
    caption = "Measured: edits that have a value; the quantiles are of those values." + (f" Off: {', '.join(off)}." if off else "")
    return [Paragraph(text), Table(columns, rows, caption, text_columns=4)]


def _row(name: str, gate: dict[str, Any]) -> tuple[str, ...]:
    quantiles = [f"{value:.4g}" for value in gate["quantiles"]] if gate["quantiles"] else ["–"] * 3
    counts = (words.count(gate["caught"]), words.count(gate["dropped"]))
    settings = ", ".join(_setting(key, value) for key, value in gate["settings"].items() if key != "embeddings")
    return words.name(name), GATES[name].caption, gate["action"], settings, words.count(gate["measured"]), *quantiles, *counts


def _setting(key: str, value: Any) -> str:
    shown = ", ".join(value) if isinstance(value, list) else f"{value:g}"
    return f"{words.name(key)} {shown}"
