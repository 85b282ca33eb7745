"""The fine-tuned editors: benchmark scores, paired differences, the paper's table for orientation, sample edits, training curves."""

from __future__ import annotations

from collections.abc import Sequence

from finetune.published import TABLE_3
from pipeline import words
from pipeline.report.bar_charts import intervals
from pipeline.report.blocks import Block, Columns, Figure, Fold, Heading, Paragraph, Section, Strip, Table, opened
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
    lead = (
        "Each variant is a copy of one base editor, fine-tuned on one training set for the same number of steps. One judge scores all "
        "variants in one pass."
    )
    return Section("arms", "Editor", lead, blocks)


def _scores(evaluation: dict, trained: Sequence[str]) -> list[Block]:
    names = words.ordered(evaluation["arms"], first=(COPY, *trained), last=(EXACT,))
    arms = {name: evaluation["arms"][name] for name in names}
    differences = {name: evaluation["differences"][name] for name in names if name in evaluation.get("differences", {})}
    reference = evaluation.get("reference_arm", "")
    rows = [(words.name(name), *_cells(arm), _difference(name, differences, reference)) for name, arm in arms.items()]
    paper = [(name, *(words.score(value) for value in scores["EN full"]), "", "–", "–", "") for name, scores in TABLE_3.items()]
    columns = ("System", "SC", "PQ", "Overall", "95 % interval", "Items", "Failed", f"Paired difference to “{reference}”")
    table = Table(
        columns,
        rows + paper,
        caption="Mean scores, 0 to 10: semantic consistency (SC), perceptual quality (PQ), overall = mean over items of √(SC·PQ).",
        muted=len(paper),
        muted_title="EditReward paper, Table 3 (GEdit-Bench-EN full), for orientation only: its scale, judge and data are different",
        emphasised="selected",
    )
    figures: list[Block] = []
    paired = [(name, estimate) for name in differences if (estimate := Estimate.read(differences[name]))]
    if paired:
        title = f"Difference to “{reference}”, paired by item"
        drawn = intervals(
            paired,
            title=title,
            x_label="difference in overall",
            form=words.difference,
            tick_form=words.plain,
            reference=("no difference", 0.0),
            emphasised=("selected",),
        )
        caption = "Whiskers are 95 % intervals. Where one crosses the dashed line, no difference is demonstrated."
        figures.append(Figure(title, drawn, caption))
    blocks: list[Block] = [table, *_failures(arms), *([Columns(figures)] if figures else [])]
    tasks = {name: arm.get("per_task") for name, arm in arms.items() if arm.get("per_task")}
    if tasks:
        names = sorted({task for values in tasks.values() for task in values})
        per_task = [(words.name(task), *(_score(values.get(task)) for values in tasks.values())) for task in names]
        blocks.append(Fold("Overall score by task", [Table(("Task", *tasks), per_task)]))
    if evaluation.get("caveats"):
        blocks.append(Fold("How to read this", [Paragraph(caveat) for caveat in evaluation["caveats"]]))
    return blocks


def _failures(arms: dict) -> list[Block]:
    """Arms with calls of the judge that failed: how often and why, the means with failures as 0, and the tasks that lack verdicts."""
    rows = [
        (
            words.name(name),
            ", ".join(f"{words.name(status)} {count}" for status, count in arm["failures"].items()),
            _score(arm["overall_failures_zero"]),
            _score(arm["over_tasks_failures_zero"]),
            ", ".join(words.name(task) for task in arm["thin_tasks"]) or "–",
        )
        for name, arm in arms.items()
        if arm.get("failures")
    ]
    caption = "Failed calls have no score. With a task judged below 90 %, a mean over tasks does not compare with other systems."
    columns = ("System", "Failed calls", "Overall, failures as 0", "Over tasks, failures as 0", "Tasks judged below 90 %")
    return [Table(columns, rows, caption)] if rows else []


def _cells(arm: dict) -> list[str]:
    low, high = arm.get("low"), arm.get("high")
    interval = "–" if low is None or high is None else f"[{words.score(low)}, {words.score(high)}]"
    scores = [_score(arm.get(name)) for name in ("semantic_consistency", "perceptual_quality", "overall")]
    return [*scores, interval, *(str(arm[name]) if name in arm else "–" for name in ("n", "failed"))]


def _score(value: float | dict | None) -> str:
    estimate = Estimate.read(value)
    return words.score(estimate.value) if estimate else "–"


def _difference(name: str, differences: dict, reference: str) -> str:
    if name == reference:
        return "reference"
    estimate = Estimate.read(differences.get(name))
    return estimate.words(words.difference) if estimate else ""


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
    verdicts = published.table(
        STEP, "verdicts", ["item_id", "arm", "overall", "status"], where=("item_id", set(table["item_id"].to_pylist()))
    )
    judged = {(row["item_id"], row["arm"]): row for row in verdicts.to_pylist()} if verdicts else {}
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
