"""Published benchmarks: the published convention beside the sound one, floors, what the training data share, the other model."""

from __future__ import annotations

from typing import Any

from pipeline.report import words
from pipeline.report.blocks import Block, Fold, Heading, Paragraph, Table
from pipeline.report.published import Published
from reward.evaluation.estimate import Estimate

CONVENTIONS = {"published": "as published", "sound": "sound"}


def blocks(published: Published) -> list[Block]:
    """A table per benchmark that was scored; nothing where none was."""
    found: list[Block] = []
    for name, figures in published.json("evaluate-reward", "benchmarks.json").get("benchmarks", {}).items():
        found += _benchmark(name, figures)
    return found


def _benchmark(name: str, figures: dict[str, Any]) -> list[Block]:
    result, contamination = figures["result"], figures["contamination"]
    floors = [floor for floor in ("random", "constant", "closest to the source") if all(floor in row for row in result["rows"])]
    rows = [
        (
            row["figure"],
            CONVENTIONS[row["convention"]],
            words.count(row["model"]["n"]),
            _estimate(row["model"]),
            *(_value(row[floor]["value"]) for floor in floors),
        )
        for row in result["rows"]
    ]
    counts = ", ".join(f"{label} {words.count(count)}" for label, count in result["counts"].items())
    shared: list[Block] = [
        Paragraph(f"Among the run's {words.count(contamination['training_sources'])} sources: {contamination['summary']}.")
    ]
    for kind, effect in contamination["effect"].items():
        compared = [
            (row["figure"], _value(row["all"]["value"]), _value((row["without"] or {}).get("value")))
            for row in effect["rows"]
            if effect["items"]
        ]
        if compared:
            shared.append(Table(("Figure", "All items", "Without"), compared, f"Without the items that match by {kind}."))
    parts: list[Block] = [
        Heading(f"Benchmark {name}, revision {figures['revision']}"),
        Table(("Figure", "Convention", "n", "Model", *(floor.capitalize() for floor in floors)), rows, f"{counts}.", text_columns=2),
        *(Paragraph(f"{note[:1].upper()}{note[1:]}.") for note in result["notes"]),
        Fold("Benchmark items that occur in the training data", shared),
    ]
    if "compare" in figures:
        other = figures["compare"]
        parts.append(
            Paragraph(
                f"Beside the other model: both right {words.count(other['both'])}, only this one {words.count(other['only_first'])}, "
                f"only the other {words.count(other['only_second'])}, neither {words.count(other['neither'])}; "
                f"McNemar's exact p = {other['p_value']:.3g}."
            )
        )
    return parts


def _estimate(figure: Any) -> str:
    found = Estimate.read(figure)
    return "–" if found is None else found.words(lambda value: f"{value:.3f}")


def _value(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
