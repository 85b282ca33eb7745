"""The reward model: training curves, held-out accuracy, confidence, published benchmarks."""

from __future__ import annotations

from typing import Any

from pipeline import words
from pipeline.report.bar_charts import intervals
from pipeline.report.blocks import Block, Callout, Columns, Figure, Fold, Paragraph, Section, Table
from pipeline.report.charts import MOST_POINTS, curve, lines
from pipeline.report.published import Published
from pipeline.report.sections import benchmarks, confidence
from reward.evaluation.estimate import Estimate
from reward.model.origin import OTHER_DOMAIN

STEPS = ("train-reward", "evaluate-reward")
CHANCE = ("chance", 0.5)
CLOSENESS = "closeness to the source"
"""The baseline that knows neither instruction nor ratings, as the evaluation names it."""
VALIDATION = "validation/accuracy"
"""Keys of held-out accuracies in the metrics; a dimension follows after a slash."""
MODEL = "reward model"
REFERENCES = {"truth": "ground-truth quality", "ratings": "the raters' labels"}
"""Sources of labels and their names on the page; the first that a run has comes first."""


def section(published: Published) -> Section:
    """Training curves, then the held-out evaluation."""
    blocks: list[Block] = []
    curves = _curves(published.lines("train-reward", "metrics.jsonl"))
    warning = published.results("evaluate-reward").get(OTHER_DOMAIN)
    if warning:
        blocks.append(Callout("Read before the figures", warning[0].upper() + warning[1:]))
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
    blocks += ([Fold("Training curves", [Columns(curves)])] if blocks else [Columns(curves)]) if curves else []
    conventions = evaluation.get("conventions", "strict pairs only")
    lead = f"Accuracy is the share of held-out pairs that the model puts in the right order ({conventions})."
    return Section("reward", "Reward model", lead, blocks)


def reference_figures(published: Published) -> tuple[str, dict[str, Any]] | None:
    """(name of the labels, all figures): ground-truth quality where the data set has it, else the raters' labels."""
    against = published.json("evaluate-reward", "evaluation.json").get("against", {})
    for name in REFERENCES:
        if name in against:
            return name, against[name]
    return None


def _curves(reports: list[dict[str, Any]]) -> list[Figure]:
    figures = []
    for phase, title in (("pretraining", "Warm-up (toy data only), loss"), ("training", "Ranking, loss")):
        own = [report for report in reports if report.get("phase", "training") == phase]
        loss = curve("loss", own, "loss")
        if loss:
            figures.append(Figure(title, lines([loss], title=title, x_label="step", y_label="loss"), _thinning(len(loss.x))))
    accuracies = [report for report in reports if report.get("phase", "training") == "training"]
    keys = {key for report in accuracies for key in report if key.startswith(VALIDATION)}
    labels = {key.removeprefix(VALIDATION).strip("/") or "overall": key for key in sorted(keys)}
    found = [curve(words.name(label), accuracies, labels[label]) for label in words.ordered(labels, first=("overall",), last=())]
    series = [entry for entry in found if entry]
    if series:
        drawn = lines(
            series, title="Held-out accuracy while training", x_label="step", y_label="pair accuracy", form=words.percent, reference=CHANCE
        )
        figures.append(Figure("Ranking, held-out pair accuracy", drawn))
    return figures


def _thinning(points: int) -> str:
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
    """How often one rater predicts another on the overall score: the bar for a model that is compared with raters' labels."""
    found = Estimate.read(published.results("annotate").get("agreement", {}).get("overall", {}).get("rater_predicts_rater"))
    return [("another rater", found)] if found else []


def _estimates(entries: dict[str, Any]) -> list[tuple[str, Estimate]]:
    return [(words.name(name), estimate) for name, value in entries.items() if (estimate := Estimate.read(value))]


def _cells(estimate: Estimate) -> tuple[str, str, str]:
    return (
        words.share(estimate.value),
        words.bounds(estimate, words.share) or "–",
        words.count(estimate.n) if estimate.n is not None else "–",
    )


def _heads(evaluation: dict[str, Any]) -> list[Table]:
    heads = evaluation.get("heads", {})
    if not heads:
        return []
    dimensions = list(dict.fromkeys(dimension for row in heads.values() for dimension in row))
    rows = [
        (f"{words.name(head)} head", *(words.cell(row.get(dimension), words.share) for dimension in dimensions))
        for head, row in heads.items()
    ]
    caption = (
        "Accuracy of each head on the labels of each dimension. In each column the head of that dimension should be clearly the best. "
        "Heads that do equally well have learnt the same thing, and their scores must not be read as separate dimensions."
    )
    return [Table(("", *(f"on {words.name(dimension)}" for dimension in dimensions)), rows, caption=caption)]


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
