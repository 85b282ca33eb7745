"""The reward model: how it trained, how often it is right on held-out groups, and whether its confidence can be believed."""

from __future__ import annotations

from typing import Any

from pipeline.report import words
from pipeline.report.blocks import Block, Columns, Figure, Fold, Paragraph, Section, Table
from pipeline.report.charts import axes
from pipeline.report.charts.intervals import intervals
from pipeline.report.charts.lines import MOST_POINTS, Series, lines
from pipeline.report.published import Published
from pipeline.report.sections import benchmarks, confidence
from pipeline.report.steps import missing
from reward.evaluation.estimate import Estimate

CHANCE = ("chance", 0.5)
VALIDATION = "validation/accuracy"
"""Keys of held-out accuracies in the metrics; a dimension follows after a slash."""
MODEL = "reward model"
REFERENCES = {"truth": "the true levels", "ratings": "the raters' labels"}
"""What labels come from, and how the page calls that; the first that a run has leads."""


def section(published: Published) -> Section:
    """Training curves, then the held-out evaluation."""
    blocks: list[Block] = [*missing(published, "train-reward")]
    curves = _curves(published.lines("train-reward", "metrics.jsonl"))
    if curves:
        blocks.append(Columns(curves))
    blocks += missing(published, "evaluate-reward")
    evaluation = published.json("evaluate-reward", "evaluation.json")
    found = reference_figures(published)
    if found:
        blocks += _accuracy(evaluation, published)
        name, figures = found
        rated = "ratings" if "ratings" in evaluation["against"] else name
        blocks += _heads(figures)
        blocks += _tasks(figures)
        blocks += confidence.blocks(figures, REFERENCES[name], evaluation["against"][rated], REFERENCES[rated])
    blocks += _likert(evaluation)
    if evaluation.get("groups_left_out"):
        count = words.count(evaluation["groups_left_out"])
        blocks.append(Paragraph(f"{count} held-out groups are left out because one of their candidates could not be scored."))
    blocks += benchmarks.blocks(published)
    conventions = evaluation.get("conventions", "strict pairs only")
    lead = f"Accuracy is the share of held-out pairs that the model puts in the right order ({conventions})."
    return Section("reward", "Reward model", lead, blocks)


def reference_figures(published: Published) -> tuple[str, dict[str, Any]] | None:
    """(what the model is compared with, all figures): the truth where the world knows it, else the raters' labels."""
    against = published.json("evaluate-reward", "evaluation.json").get("against", {})
    for name in REFERENCES:
        if name in against:
            return name, against[name]
    return None


def _curves(reports: list[dict[str, Any]]) -> list[Figure]:
    figures = []
    for phase, title in (("pretraining", "Stand-in pretraining, loss"), ("training", "Ranking, loss")):
        own = [report for report in reports if report.get("phase", "training") == phase]
        loss = _series("loss", own, "loss")
        if loss:
            figures.append(Figure(title, lines([loss], title=title, x_label="step", y_label="loss"), _stretches(len(loss.x))))
    accuracies = [report for report in reports if report.get("phase", "training") == "training"]
    keys = {key for report in accuracies for key in report if key.startswith(VALIDATION)}
    labels = {key.removeprefix(VALIDATION).strip("/") or "overall": key for key in sorted(keys)}
    found = [_series(words.name(label), accuracies, labels[label]) for label in words.ordered(labels, first=("overall",), last=())]
    series = [entry for entry in found if entry]
    if series:
        drawn = lines(
            series, title="Held-out accuracy while training", x_label="step", y_label="pair accuracy", form=axes.percent, reference=CHANCE
        )
        figures.append(Figure("Ranking, held-out pair accuracy", drawn))
    return figures


def _series(name: str, reports: list[dict[str, Any]], key: str) -> Series | None:
    points = {report["step"]: report[key] for report in reports if isinstance(report.get(key), (int, float)) and "step" in report}
    ordered = sorted(points.items())
    return Series(name, [step for step, _ in ordered], [value for _, value in ordered]) if len(ordered) > 1 else None


def _stretches(points: int) -> str:
    size = -(-points // MOST_POINTS)
    return f"Each point is the mean of {size} reports." if size > 1 else ""


def _accuracy(evaluation: dict[str, Any], published: Published) -> list[Block]:
    rows: list[tuple[str, ...]] = []
    figures: list[Block] = []
    references = {name: evaluation["against"][name] for name in REFERENCES if name in evaluation["against"]}
    for position, (name, against) in enumerate(references.items()):
        label = REFERENCES[name]
        accuracies = against.get("pair_accuracy", {})
        measured = _estimates({name: accuracies[name] for name in words.ordered(accuracies, first=("overall",), last=())})
        baselines = _estimates(against.get("baselines", {}))
        if name == "ratings":
            baselines += _rater_against_rater(published)
        own = [(f"{MODEL}, {dimension}", estimate) for dimension, estimate in measured]
        rows += [(subject, label, *_cells(estimate)) for subject, estimate in own + baselines]
        overall = [(MODEL, estimate) for dimension, estimate in measured if dimension == "overall"]
        if overall and baselines and position == 0:
            compared = sorted([*overall, *baselines], key=lambda row: -row[1].value)
            title = f"Compared with baselines, against {label}"
            drawn = intervals(compared, title=title, x_label="accuracy on held-out pairs, overall", reference=CHANCE, emphasised=(MODEL,))
            figures = [Figure(title, drawn, "Whiskers are 95 % intervals."), *confidence.facts(against, references.get("ratings", against))]
    table = Table(("", "Against", "Accuracy", "95 % interval", "Pairs"), rows, text_columns=2, emphasised=f"{MODEL}, overall")
    blocks: list[Block] = [Columns(figures)] if figures else []
    return [*blocks, table] if rows else blocks


def _rater_against_rater(published: Published) -> list[tuple[str, Estimate]]:
    """How often one rater predicts another on the overall score: the bar for a model that is compared with one rater's labels."""
    found = Estimate.read(published.results("annotate").get("agreement", {}).get("overall", {}).get("rater_predicts_rater"))
    return [("another rater", found)] if found else []


def _estimates(entries: dict[str, Any]) -> list[tuple[str, Estimate]]:
    return [(words.name(name), estimate) for name, value in entries.items() if (estimate := Estimate.read(value))]


def _cells(estimate: Estimate) -> tuple[str, str, str]:
    bounded = estimate.low is not None and estimate.high is not None
    interval = f"{words.share(estimate.low)} to {words.share(estimate.high)}" if bounded else "–"
    return words.share(estimate.value), interval, words.count(estimate.n) if estimate.n is not None else "–"


def _heads(evaluation: dict[str, Any]) -> list[Table]:
    heads = evaluation.get("heads", {})
    if not heads:
        return []
    dimensions = list(dict.fromkeys(dimension for row in heads.values() for dimension in row))
    rows = [(f"{words.name(head)} head", *(_share(row.get(dimension)) for dimension in dimensions)) for head, row in heads.items()]
    caption = (
        "Which head knows which dimension. Read down a column: the head of that dimension should be clearly the best; where both do "
        "equally well, they learnt the same thing, and neither score must be read as its dimension."
    )
    return [Table(("", *(f"on {words.name(dimension)}" for dimension in dimensions)), rows, caption=caption)]


def _share(value: Any) -> str:
    estimate = Estimate.read(value)
    return estimate.words(words.share) if estimate else "–"


def _tasks(figures: dict[str, Any]) -> list[Block]:
    tasks = sorted(_estimates(figures.get("per_task", {})), key=lambda row: -row[1].value)
    if not tasks:
        return []
    drawn = intervals(tasks, title="Accuracy by task", x_label="accuracy on held-out pairs, overall", reference=CHANCE)
    table = Table(("Task", "Accuracy", "95 % interval", "Pairs"), [(name, *_cells(estimate)) for name, estimate in tasks])
    return [Fold("Accuracy by task", [Columns([Figure("Accuracy by task", drawn), table])])]


def _likert(evaluation: dict[str, Any]) -> list[Block]:
    errors = {
        name: entry for name, entry in evaluation.get("likert", {}).items() if isinstance(entry, dict) and "mean_absolute_error" in entry
    }
    if not errors:
        return []
    parts = [f"{words.score(entry['mean_absolute_error'])} in {words.name(name)}" for name, entry in errors.items()]
    return [
        Paragraph(
            "Scores are also given on the raters' scale, through a monotone map fitted on one half of the held-out groups. "
            f"On the other half its mean absolute error is {words.listing(parts)}."
        )
    ]
