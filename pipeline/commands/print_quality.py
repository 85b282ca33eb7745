"""Output of `pipeline annotate qc`, `annotate build-bench` and `annotate consensus`."""

from __future__ import annotations

from typing import Any

from pipeline import words
from pipeline.report import quality_page
from pipeline.words import text_table
from stages.annotate.bench import step as build_bench
from stages.annotate.quality import step as annotation_qc
from stages.engine import storage
from stages.engine.rundir import Index, RunDir


def summary(run: RunDir) -> str:
    """Targets, annotators, queues as text; writes the page."""
    folder = run.step(annotation_qc.STEP).path
    figures = storage.read_json(folder / "quality.json")
    page = quality_page.build(run)
    parts = [
        "targets\n"
        + text_table(
            ["round", "dimension", "statistic", "wanted", "all ratings", "accepted", "met"], [_target(t) for t in figures["targets"]]
        ),
        "annotators\n"
        + text_table(
            ["annotator", "status", "dimension", "groups", "compared", "kappa", "severity", "drift"],
            [_annotator(entry) for entry in figures["annotators"]],
        ),
    ]
    reasons = {entry["annotator"]: entry["reasons"] for entry in figures["annotators"] if entry["reasons"]}
    parts += ["\n".join(f"{name}: {'; '.join(why)}" for name, why in reasons.items())] if reasons else []
    ratings, again = figures["ratings"], figures["again"]
    excluded = ", ".join(f"{reason} {count:,}" for reason, count in ratings["excluded"].items()) or "none"
    parts.append(f"ratings: {ratings['in']:,}, accepted {ratings['accepted']:,}, excluded: {excluded}")
    listed = ", ".join(f"{reason} {count:,}" for reason, count in again["groups"].items())
    groups = f"re-annotation queue: {listed} groups ({folder / 'reannotate.csv'})" if listed else "re-annotation queue: empty"
    cells = f"\nadjudication queue: {again['cells']:,} cells ({folder / 'adjudicate.csv'})" if again["cells"] else ""
    parts.append(groups + cells)
    if figures["again_exceeds"]:
        parts.append(
            f"warning: more than {figures['most_again']:.0%} of the rated groups are queued for re-annotation; check the rubric first"
        )
    parts.append(f"the targets are {'met' if figures['met'] else 'not met'}\npage: {page}")
    return "\n\n".join(parts)


def _target(target: dict[str, Any]) -> list[str]:
    sign = "lower limit >=" if target["bound"] == "low" else ">="
    met = {True: "yes", False: "no", None: "no ratings"}[target["met"]]
    wanted = f"{sign} {target['at_least']:g}"
    found = [estimate(target[name], "{:.2f}") for name in ("estimate_of_all", "estimate")]
    return [target["round"], target["dimension"], target["statistic"], wanted, *found, met]


def _annotator(entry: dict[str, Any]) -> list[str]:
    drift = entry.get("drift")
    return [
        entry["annotator"],
        entry["status"],
        entry["dimension"],
        f"{entry.get('groups', 0):,}",
        f"{entry.get('compared_groups', 0):,}",
        estimate(entry.get("kappa"), "{:.2f}"),
        estimate(entry.get("severity"), "{:+.2f}"),
        "" if drift is None else f"{drift:+.2f}",
    ]


def estimate(value: dict[str, Any] | None, form: str) -> str:
    """An estimate with its interval, or the reason why there is none; empty where nothing was estimated."""
    return "" if value is None else words.cell(value, form.format)


def bench(run: RunDir) -> str:
    """Result of `pipeline annotate build-bench`."""
    folder = run.step(build_bench.STEP).path
    figures = storage.read_json(folder / "summary.json")
    tasks = sorted({task for by_task in figures["by_task"].values() for task in by_task})
    rows = [
        [size, f"{count:,}", f"{figures['mean_difference'].get(size, 0):.2f}", *(f"{figures['by_task'][size].get(t, 0):,}" for t in tasks)]
        for size, count in figures["tuples"].items()
    ]
    parts = [
        text_table(["edits", "tuples", "mean difference", *tasks], rows),
        f"{figures['comparisons']:,} comparisons, {figures['ties']:,} ties; experts who agree with the label: "
        f"{figures['expert_agreement']:.1%}",
    ]
    short = ", ".join(f"{count:,} of {size} edits" for size, count in figures["missing"].items())
    parts += [f"warning: fewer tuples than wanted, missing {short}; the experts' groups give no more"] if short else []
    left = ", ".join(f"{reason} {count:,}" for reason, count in figures["groups_left_out"].items())
    parts += [f"groups left out: {left}"] if left else []
    if figures["candidates_that_are_copies"]:
        parts.append(f"candidates not compared because their group has the same image twice: {figures['candidates_that_are_copies']:,}")
    if figures["cells_to_adjudicate"]:
        parts.append(f"adjudication queue: {figures['cells_to_adjudicate']:,} cells ({folder / 'adjudicate.csv'})")
    parts.append(f"benchmark: {folder / build_bench.LAYOUT}")
    return "\n\n".join(parts)


def consensus(index: Index, run: RunDir) -> str:
    """Result of `pipeline annotate consensus`."""
    labels = ", ".join(f"{source} {count:,}" for source, count in index.results["labels"].items())
    figures = [f"{name.replace('_', ' ')}: {value:,}" for name, value in index.results.items() if isinstance(value, int) and value]
    left = [f"left out: {', '.join(f'{reason} {count:,}' for reason, count in index.quarantined.items())}"] if index.quarantined else []
    warnings = [f"warning: {warning}" for warning in index.results.get("warnings", [])]
    return "\n".join([f"labels: {labels}", *figures, *left, *warnings, f"written to {run.step(index.step).path}"])
