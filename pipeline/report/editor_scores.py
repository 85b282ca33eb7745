"""Tables of an editor's benchmark: one judge's scores, and published figures beside them, never in one table."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from finetune.published import COLUMNS, TABLE_3
from finetune.published_editors import EDITORS
from pipeline import words
from pipeline.report.bar_charts import intervals
from pipeline.report.blocks import Block, Columns, Figure, Fold, Paragraph, Table
from pipeline.report.published import Published
from reward.evaluation.estimate import Estimate
from stages.evaluate_editor.measuring import REWARD
from stages.evaluate_editor.step import COPY, EXACT, STEP

AVERAGES = {
    "items": "overall = mean over items of √(SC·PQ)",
    "tasks": "each is the unweighted mean of the tasks' means; overall is of √(SC·PQ) per item",
}
SHORT = {"semantic_consistency": "SC", "perceptual_quality": "PQ"}
OTHER_RUBRIC = "Mean scores of ImgEdit-Bench's rubric, 1 to 5; overall is the mean of the three per item, its mean over tasks unweighted"


def of_judge(evaluation: Mapping[str, Any], trained: Sequence[str]) -> list[Block]:
    """One judge's results: headline, paired differences, languages and subsets, failures, tasks, wins and losses."""
    names = words.ordered(evaluation["arms"], first=(COPY, *trained), last=(EXACT,))
    arms = {name: evaluation["arms"][name] for name in names}
    differences = {name: evaluation["differences"][name] for name in names if name in evaluation.get("differences", {})}
    reference = evaluation.get("reference_arm", "")
    by_items = evaluation.get("averaging") == "tasks"
    scores = evaluation.get("scores", list(SHORT))
    rows = [(words.name(name), *_cells(arm, scores, by_items), _difference(name, differences, reference)) for name, arm in arms.items()]
    beside = ("By items",) if by_items else ()
    columns = (
        "System",
        *(SHORT.get(name, words.name(name)) for name in scores),
        "Overall",
        "95 % interval",
        *beside,
        "Items",
        "Failed",
        f"Paired difference to “{reference}”",
    )
    average = AVERAGES[evaluation.get("averaging", "items")]
    what = f"Mean scores, 0 to 10: semantic consistency (SC), perceptual quality (PQ); {average}" if scores == list(SHORT) else OTHER_RUBRIC
    seen = evaluation.get("contamination")
    known = f" {seen['seen']} of the {seen['items']} items have an image that the reward model's raters saw, or nearly." if seen else ""
    caption = f"{what}.{known}"
    blocks: list[Block] = [*_judge(evaluation), Table(columns, rows, caption, emphasised="selected"), *_languages(evaluation, names)]
    blocks += [*_failures(arms), *_drawn(differences, reference)]
    tasks = {name: arm.get("per_task") for name, arm in arms.items() if arm.get("per_task")}
    if tasks:
        every = sorted({task for values in tasks.values() for task in values})
        per_task = [(words.name(task), *(_score(values.get(task)) for values in tasks.values())) for task in every]
        blocks.append(Fold("Overall score by task", [Table(("Task", *tasks), per_task)]))
    return [*blocks, *_wins(evaluation, reference)]


def verdicts_of(published: Published, items: Collection[str]) -> dict[tuple[str, str], dict[str, Any]]:
    """Verdicts of the first judge in the headline's language on these items, by item and system."""
    evaluation = published.json(STEP, "evaluation.json")
    columns = ["item_id", "language", "arm", "judge_revision", "overall", "status"]
    table = published.table(STEP, "verdicts", columns, where=("item_id", items))
    judge, language = evaluation.get("judge", {}).get("revision"), evaluation.get("language", "")
    return {
        (row["item_id"], row["arm"]): row
        for row in (table.to_pylist() if table else [])
        if row["judge_revision"] == judge and language in ("", row["language"])
    }


def preservation(evaluation: Mapping[str, Any]) -> list[Block]:
    """What edits keep outside the region that they change."""
    measured, further = evaluation.get("preservation", {}), evaluation.get("measures", {})
    rows = [
        (
            words.name(name),
            *(_score(entry[key]) for key in ("psnr", "ssim")),
            words.share(entry["changed_share"]),
            str(entry["measured"]),
            *(_score(of_system[name]["mean"]) for of_system in further.values()),
        )
        for name, entry in measured.items()
        if name != EXACT and entry["changed_share"] is not None
    ]
    caption = (
        "No judge: PSNR in dB (at most 60) and SSIM of edit and source outside the changed region. A system whose scores rise while these "
        "fall may please the judge at the picture's cost. Items: edits with enough outside."
    )
    titles = ("Reward (not independent)" if name == REWARD else name for name in further)
    columns = ("System", "PSNR", "SSIM", "Changed pixels", "Items", *titles)
    return [Fold("What edits keep", [Table(columns, rows, caption)])] if rows else []


def published() -> list[Block]:
    """The paper's table and published figures of editors, with judge, date and caveats."""
    paper = [
        (name, *(f"{words.score(scores[column].overall)} ({words.score(scores[column].perceptual_quality)})" for column in COLUMNS))
        for name, scores in TABLE_3.items()
    ]
    table = Table(
        ("System", *COLUMNS),
        paper,
        "EditReward paper, Table 3: overall, and PQ in brackets; judge gpt-4.1. The base row was copied from an earlier judging, its CN "
        "full cell is v1.1's (v1.0: 6.66), one seed, no random subset of the same size; PQ falls against the base.",
    )
    rows = [
        (
            one.system,
            one.column,
            one.judge,
            one.when,
            one.caveat,
            _score(one.semantic_consistency),
            _score(one.perceptual_quality),
            _score(one.overall),
        )
        for one in EDITORS
    ]
    columns = ("System", "Part", "Judge", "When", "Of it", "SC", "PQ", "Overall")
    lead = Paragraph(
        "For orientation only. Another judge, another date of the same judge, or other questions to it are another scale: none of these "
        "figures compares with those above."
    )
    return [Fold("Published figures of GEdit-Bench", [lead, table, Table(columns, rows, "As published.", text_columns=5)])]


def _judge(evaluation: Mapping[str, Any]) -> list[Block]:
    """Who judged, where it is no program."""
    judge = evaluation.get("judge", {})
    cost = evaluation.get("cost", {})
    if not cost:
        return []
    snapshots = f"; replies name {words.listing(judge['snapshots'])}" if judge.get("snapshots") else ""
    tokens = f"{words.count(cost['prompt_tokens'])} tokens of prompts and {words.count(cost['completion_tokens'])} of replies"
    price = f", US$ {cost['usd']:.2f}" if "usd" in cost else ""
    return [Paragraph(f"Judge: {judge.get('revision', '')}{snapshots}; {tokens}{price}.")]


def _languages(evaluation: Mapping[str, Any], names: Sequence[str]) -> list[Block]:
    columns = evaluation.get("columns", {})
    if not columns:
        return []
    rows = [(words.name(name), *(_of(column["arms"][name]) for column in columns.values())) for name in names]
    return [Table(("System", *columns), rows, "Overall with its 95 % interval, by language and part of the benchmark.")]


def _of(arm: Mapping[str, Any]) -> str:
    found = Estimate.read({"value": arm.get("overall"), "low": arm.get("low"), "high": arm.get("high")})
    return found.words(words.score) if found else "–"


def _drawn(differences: Mapping[str, Any], reference: str) -> list[Block]:
    paired = [(name, estimate) for name in differences if (estimate := Estimate.read(differences[name]))]
    if not paired:
        return []
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
    return [Columns([Figure(title, drawn, caption)])]


def _wins(evaluation: Mapping[str, Any], reference: str) -> list[Block]:
    wins = {name: tasks for name, tasks in evaluation.get("wins", {}).items() if tasks}
    if not wins:
        return []
    every = sorted({task for tasks in wins.values() for task in tasks})
    rows = [(words.name(task), *(" / ".join(map(str, tasks.get(task, (0, 0, 0)))) for tasks in wins.values())) for task in every]
    rows.append(("all", *(" / ".join(str(sum(counts)) for counts in zip(*tasks.values(), strict=True)) for tasks in wins.values())))
    return [Fold(f"Won / tied / lost against “{reference}”", [Table(("Task", *wins), rows, "Items judged for both, by overall score.")])]


def _failures(arms: Mapping[str, Any]) -> list[Block]:
    """Systems with edits that have no verdict: how often and why, the means with failures as 0, and the tasks that lack verdicts."""
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
    caption = "Failed calls have no score. With a task judged below 90 %, there is no overall score."
    columns = ("System", "Failed calls", "Overall, failures as 0", "Over tasks, failures as 0", "Tasks judged below 90 %")
    return [Table(columns, rows, caption)] if rows else []


def _cells(arm: Mapping[str, Any], names: Sequence[str], by_items: bool) -> list[str]:
    low, high = arm.get("low"), arm.get("high")
    interval = "–" if low is None or high is None else f"[{words.score(low)}, {words.score(high)}]"
    scores = [_score(arm.get(name)) for name in (*names, "overall")]
    beside = [_score(arm.get("over_items"))] if by_items else []
    return [*scores, interval, *beside, *(str(arm[name]) if name in arm else "–" for name in ("n", "failed"))]


def _score(value: float | dict | None) -> str:
    estimate = Estimate.read(value)
    return words.score(estimate.value) if estimate else "–"


def _difference(name: str, differences: Mapping[str, Any], reference: str) -> str:
    if name == reference:
        return "reference"
    estimate = Estimate.read(differences.get(name))
    return estimate.words(words.difference) if estimate else ""
