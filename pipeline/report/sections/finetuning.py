"""Training of large editors: pairs and steps of every arm, the loss on held-out pairs, and edits of some of them at the end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipeline import words
from pipeline.report.blocks import Block, Figure, Heading, Section, Strip, Table
from pipeline.report.charts import curve, lines
from pipeline.report.pictures import picture
from pipeline.report.published import Published
from stages.engine.steps import FINETUNE

STEPS = (FINETUNE,)
_SIDE = 640
"""Longest side of a sample: three images side by side."""


def section(published: Published) -> Section:
    """Nothing for the toy data set's small editor, of which nothing is held out."""
    results = published.results(FINETUNE)
    pairs, steps = results.get("pairs"), results.get("steps", {})
    if not pairs:
        return Section("finetuning", "Fine-tuning", "", [])
    rows = [(words.name(arm), words.count(pairs[arm]), words.count(count)) for arm, count in steps.items()]
    blocks: list[Block] = [Table(("Variant", "Pairs", "Steps"), rows)]
    logs = {arm: published.lines(FINETUNE, f"metrics/{arm}.jsonl") for arm in steps}
    curves = [found for arm, reports in logs.items() if (found := curve(words.name(arm), reports, "held_out"))]
    if curves:
        title = "Loss on held-out pairs, at fixed times and noise"
        caption = "The pairs come from all training sets together, flawed ones included. A lower loss is not a better edit."
        blocks.append(Figure(title, lines(curves, title=title, x_label="step", y_label="flow matching loss"), caption))
    folder = published.path / FINETUNE / "samples"
    blocks += _samples(folder, list(steps), published.results(FINETUNE).get("sampled", ()))
    lead = f"{words.count(pairs['held-out'])} pairs are held out of every variant, with all pairs of their sources."
    return Section("finetuning", "Fine-tuning", lead, blocks)


def _samples(folder: Path, arms: Sequence[str], instructions: Sequence[str]) -> list[Block]:
    """Per held-out pair, the newest sample of every arm: source, edit of the data, edit of the arm. instructions: by number of the pair."""
    newest: dict[str, dict[str, Path]] = {}
    for arm in arms:
        for path in sorted((folder / arm).glob("*.png")):
            newest.setdefault(path.stem.partition("-")[2], {})[arm] = path
    strips: list[Block] = []
    for number, found in newest.items():
        shown = [
            picture(path.read_bytes(), alt=f"{arm}: held-out pair {number}", lines=(_caption(arm, path),), side=_SIDE)
            for arm, path in found.items()
        ]
        said = f": {instructions[int(number)]}" if int(number) < len(instructions) else ""
        strips.append(Strip(f"held-out pair {int(number)}{said}", shown))
    return [Heading("Source, edit of the data, edit of the variant"), *strips] if strips else []


def _caption(arm: str, path: Path) -> str:
    return f"{words.name(arm)}, step {int(path.stem.partition('-')[0]):,}"
