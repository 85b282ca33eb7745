"""`pipeline status`: state, counts and main result of every step in a run directory; damage and unfinished steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline.flow import STEPS
from pipeline.words import text_table
from reward.evaluation.estimate import Estimate
from reward.model.origin import OTHER_DOMAIN
from stages.engine.rundir import Index, RunDir, StepFolder
from stages.engine.steps import ANNOTATION_QC

COUNTS = ("in", "out", "quarantined")
"""These counts come first. Others are left out where they are zero."""


def status(path: Path) -> str:
    """One line per step. Raises ``ValueError`` when there is no such run."""
    if not path.is_dir():
        raise ValueError(f"there is no run directory {path}; `pipeline run` makes one")
    run = RunDir(path)
    rows = []
    decision = run.step(ANNOTATION_QC).index()
    upstream = {ANNOTATION_QC: decision.fingerprint} if decision else {}
    for step in STEPS:
        folder = run.step(step.name)
        index = folder.index()
        if index is None:
            rows.append([step.name, _progress(folder), "", ""])
            continue
        stale = [name for name, fingerprint in index.inputs.items() if name in upstream and upstream[name] != fingerprint]
        damage = folder.damage(index)
        state = f"damaged: {damage}" if damage else f"stale: {stale[0]} changed" if stale else "done"
        upstream[step.name] = index.fingerprint
        rows.append([step.name, state, counted(index), headline(index)])
    return f"run directory: {run.path}\n\n" + text_table(["step", "state", "rows", "result"], rows)


def _progress(folder: StepFolder) -> str:
    log = folder.path / "units.jsonl"
    if log.exists():
        return f"begun: {sum(1 for _ in log.open())} units finished"
    return "begun" if folder.path.exists() else "to do"


def counted(index: Index) -> str:
    """Row counts of a step, so that in = out + all others."""
    order = sorted(index.counts, key=lambda name: (COUNTS.index(name) if name in COUNTS else len(COUNTS), name))
    return " ".join(f"{name} {index.counts[name]:,}" for name in order if index.counts[name] or name in COUNTS)


def headline(index: Index) -> str:
    """The main result of a step, in a line."""
    try:
        return _headline(index)
    except KeyError as missing:
        return f"(made by another version of the code: its results have no {missing.args[0]})"


def _headline(index: Index) -> str:
    results = index.results
    match index.step:
        case "generate":
            failed = f", {results['failed_candidates']:,} failed" if results.get("failed_candidates") else ""
            smaller = f", {results['smaller_groups']:,} sources below generate.annotate" if results.get("smaller_groups") else ""
            return (
                f"{results['candidates_per_source']} candidates per source, {results['annotated_per_source']} to annotate{failed}{smaller}"
            )
        case "preferences":
            return ", ".join(f"{split} {sum(kinds.values()):,} pairs" for split, kinds in results["pairs"].items())
        case "finetune":
            return "editors: " + ", ".join(results["arms"])
        case "evaluate-reward":
            if "pair_accuracy" not in results:
                return "benchmarks: " + ", ".join(results["benchmarks"]) + _warning(results)
            accuracy = results["pair_accuracy"]
            return f"held-out pair accuracy {accuracy['value']:.3f} [{accuracy['low']:.3f}, {accuracy['high']:.3f}]{_warning(results)}"
        case "filter":
            kept = ", ".join(_kept(name, entry) for name, entry in sorted(results["selections"].items()))
            return f"selected: {kept}{_warning(results)}"
        case "evaluate-editor":
            overall = ", ".join(f"{arm} {'–' if value is None else f'{value:.2f}'}" for arm, value in results["overall"].items())
            read = {arm: Estimate.read(entry) for arm, entry in results["differences"].items()}
            differences = ", ".join(f"{arm} {found.words('{:+.2f}'.format) if found else '–'}" for arm, found in read.items())
            failed = "".join(f"; {count:,} calls of the judge failed for {arm}" for arm, count in results.get("failed", {}).items())
            return f"overall score of 10: {overall}; difference to {results['reference_arm']}: {differences}{failed}"
        case _:
            numbers = {name: f"{value:,}" for name, value in results.items() if isinstance(value, int) and value}
            return ", ".join(f"{name} {text}" for name, text in {**results, **numbers}.items() if isinstance(text, str))


def _warning(results: dict[str, Any]) -> str:
    return " (warning: images of another domain than the model's)" if OTHER_DOMAIN in results else ""


def _kept(name: str, entry: dict[str, Any]) -> str:
    good = f" ({100 * entry['good_share']:.0f} % good in both dimensions)" if "good_share" in entry else ""
    return f"{name} {entry['count']:,}{good}"
