"""The fine-tuned editors: benchmark scores by judge, published figures for orientation, sample edits, training curves."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline import words
from pipeline.report import editor_scores
from pipeline.report.blocks import Block, Columns, Figure, Fold, Heading, Paragraph, Section, Strip, opened
from pipeline.report.charts import curve, lines
from pipeline.report.pictures import picture
from pipeline.report.published import Published
from reward.evaluation.estimate import Estimate
from stages.evaluate_editor.step import COPY, EXACT, STEP

STEPS = ("finetune", STEP)
SHOWN_OPEN = 4


def section(published: Published) -> Section:
    """Scores, differences, sample edits, training curves."""
    blocks: list[Block] = []
    evaluation = published.json(STEP, "evaluation.json")
    if evaluation.get("arms"):
        blocks += _scores(evaluation, published.results("finetune").get("arms", ()))
    blocks += _samples(published)
    blocks += _curves(published)
    steps = published.results("finetune").get("steps", {})
    equal = (
        "the same number of steps" if len(set(steps.values())) < 2 else "the same number of epochs, which are different numbers of steps"
    )
    lead = (
        f"Each variant is a copy of one base editor, fine-tuned on one training set for {equal}. One judge scores all variants in one pass."
    )
    return Section("arms", "Trained editors", lead, blocks)


def _scores(evaluation: dict, trained: Sequence[str]) -> list[Block]:
    """A table per judge, what edits keep, published figures apart."""
    blocks = editor_scores.of_judge(evaluation, trained)
    for further in evaluation.get("further_judges", ()):
        blocks += [Heading(f"The same edits, judged by {further['judge']['name']}"), *editor_scores.of_judge(further, trained)]
    blocks += [*editor_scores.preservation(evaluation), *editor_scores.published()]
    if evaluation.get("caveats"):
        blocks.append(Fold("How to read this", [Paragraph(caveat) for caveat in evaluation["caveats"]]))
    return blocks


def overall_scores(published: Published) -> list[tuple[str, Estimate]]:
    """Overall benchmark score of every editor that was judged, without the untouched source and the exact edit."""
    arms = published.json(STEP, "evaluation.json").get("arms", {})
    names = words.ordered(arms, first=published.results("finetune").get("arms", ()), last=())
    return [
        (published.label(name), Estimate(arms[name]["overall"], arms[name].get("low"), arms[name].get("high")))
        for name in names
        if name not in (COPY, EXACT) and arms[name].get("overall") is not None
    ]


def _samples(published: Published) -> list[Block]:
    table = published.table(STEP, "samples", ["item_id", "instruction", "arm", "image"])
    if table is None:
        return []
    judged = editor_scores.verdicts_of(published, set(table["item_id"].to_pylist()))
    items: dict[str, list[dict]] = {}
    for row in table.to_pylist():
        items.setdefault(row["item_id"], []).append(row)
    strips = [_strip(rows, judged) for rows in items.values()]
    return [Heading("Edits of the same benchmark items"), *opened(strips, SHOWN_OPEN)]


def _strip(rows: Sequence[dict], judged: dict) -> Strip:
    pictures = []
    for row in rows:
        verdict = judged.get((row["item_id"], row["arm"]))
        name = {COPY: "source", EXACT: "exact edit"}.get(row["arm"], row["arm"])
        lines = [name]
        if verdict and row["arm"] not in (COPY, EXACT):
            lines.append(verdict["status"] if verdict["overall"] is None else f"overall {words.score(verdict['overall'])}")
        pictures.append(picture(row["image"]["bytes"], alt=f"{name}: {row['instruction']}", lines=lines))
    return Strip(rows[0]["instruction"], pictures)


def _curves(published: Published) -> list[Block]:
    logs = sorted((published.path / "finetune" / "metrics").glob("*.jsonl"))
    found = {path.stem: curve(path.stem, published.lines("finetune", f"metrics/{path.name}"), "loss") for path in logs}
    series = {name: entry for name, entry in found.items() if entry}
    base = [series.pop("base")] if "base" in series else []
    figures = []
    if base:
        figures.append(
            Figure("Base editor", lines(base, title="Training loss of the base editor", x_label="step", y_label="flow matching loss"))
        )
    if series:
        drawn = lines(list(series.values()), title="Training loss of the variants", x_label="step", y_label="flow matching loss")
        figures.append(Figure("Variants", drawn, "Losses on different training sets cannot be compared: flawed edits are harder to fit."))
    return [Fold("Training curves", [Columns(figures)])] if figures else []
