"""The order of the steps, and running them: what happens between reading a configuration and showing results."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipeline.commands.tables import text_table
from reward.evaluation.estimate import Estimate
from stages.annotate import step as annotate
from stages.config import FlowConfig
from stages.context import Context
from stages.engine.rundir import Index
from stages.evaluate_editor import step as evaluate_editor
from stages.evaluate_reward import step as evaluate_reward
from stages.filter import step as filter
from stages.finetune import step as finetune
from stages.generate import step as generate
from stages.preferences import step as preferences
from stages.train_reward import step as train_reward

COUNTS = ("in", "out", "quarantined", "gated")
"""Order in which counts are shown, before others."""
PACKAGES = ("torch", "transformers", "diffusers", "ray", "pyarrow", "webdataset", "numpy", "pillow")


@dataclass(frozen=True)
class Step:
    """A step of the flow: ``section`` is the part of the configuration that it cannot do without."""

    name: str
    section: str
    does: str
    run: Any


def _annotate(context: Context) -> Index:
    """Ratings inside the whole flow: simulated where the configuration says so, otherwise they must have been ingested."""
    if context.flow.annotate.simulate is None:
        index = context.run.step(annotate.STEP).index()
        if index is None:
            raise ValueError(
                "there are no ratings yet: `pipeline annotate export` writes the work for the raters, "
                "`pipeline annotate ingest` reads what they return"
            )
        return index
    annotate.export(context)
    annotate.ingest(context, annotate.simulate(context))
    return context.run.step(annotate.STEP).require()


STEPS = (
    Step("generate", "generate", "sources -> candidates", generate.run),
    Step("annotate", "generate", "candidates -> ratings", _annotate),
    Step("preferences", "generate", "ratings -> preference pairs", preferences.run),
    Step("train-reward", "generate", "preference pairs -> reward model", train_reward.run),
    Step("evaluate-reward", "generate", "reward model -> held-out agreement", evaluate_reward.run),
    Step("filter", "filter", "noisy edits -> scores -> selections -> shards", filter.run),
    Step("finetune", "finetune", "shards -> editors, one per selection", finetune.run),
    Step("evaluate-editor", "evaluate_editor", "editors -> benchmark table", evaluate_editor.run),
)


def steps_of(flow: FlowConfig, name: str) -> list[Step]:
    """The steps that a command runs: one of them, or for ``all`` every one that the configuration has a section for."""
    if name == "all":
        return [step for step in STEPS if getattr(flow, step.section) is not None]
    return [step for step in STEPS if step.name == name]


def run_steps(context: Context, steps: Sequence[Step]) -> None:
    """Run steps in order; prints what will be done first and a table of results at the end."""
    print(f"run directory: {context.run.path}")
    print("steps: " + "; ".join(f"{number}. {step.name} ({step.does})" for number, step in enumerate(steps, start=1)), flush=True)
    rows = []
    for step in steps:
        before = context.run.step(step.name).index()
        started, clock = datetime.now(UTC), time.monotonic()
        index = step.run(context)
        seconds = time.monotonic() - clock
        known = context.run.manifest().get("steps", {}).get(step.name)
        if before != index or known is None:
            context.run.note(step.name, _facts(started, seconds, context.flow.seed))
            state = "done"
        else:
            state = "was done"
        counts = counted(index)
        rows.append([step.name, state, f"{seconds:.1f} s", counts, headline(index)])
        print(f"{step.name}: {state} in {seconds:.1f} s  {headline(index)}", flush=True)
    print("\n" + text_table(["step", "state", "time", "rows", "result"], rows), flush=True)


def counted(index: Index) -> str:
    """Rows in and out, and where the others are."""
    order = sorted(index.counts, key=lambda name: (COUNTS.index(name) if name in COUNTS else len(COUNTS), name))
    return " ".join(f"{name} {index.counts[name]:,}" for name in order)


def headline(index: Index) -> str:
    """The one figure of a step worth a line."""
    try:
        return _headline(index)
    except KeyError as missing:
        return f"(another version of the code made it: its results have no {missing.args[0]})"


def _headline(index: Index) -> str:
    results = index.results
    match index.step:
        case "generate":
            failed = f", {results['failed_candidates']:,} failed" if results.get("failed_candidates") else ""
            return f"{results['candidates_per_source']} candidates per source, {results['annotated_per_source']} to annotate{failed}"
        case "preferences":
            return ", ".join(f"{split} {sum(kinds.values()):,} pairs" for split, kinds in results["pairs"].items())
        case "finetune":
            return "editors: " + ", ".join(results["arms"])
        case "evaluate-reward":
            if "pair_accuracy" not in results:
                return "benchmarks: " + ", ".join(results["benchmarks"])
            accuracy = results["pair_accuracy"]
            return f"held-out pair accuracy {accuracy['value']:.3f} [{accuracy['low']:.3f}, {accuracy['high']:.3f}]"
        case "filter":
            kept = ", ".join(_kept(name, entry) for name, entry in sorted(results["selections"].items()))
            return f"selected: {kept}"
        case "evaluate-editor":
            overall = ", ".join(f"{arm} {'–' if value is None else f'{value:.2f}'}" for arm, value in results["overall"].items())
            read = {arm: Estimate.read(entry) for arm, entry in results["differences"].items()}
            differences = ", ".join(f"{arm} {found.words('{:+.2f}'.format) if found else '–'}" for arm, found in read.items())
            failed = "".join(f"; {count:,} calls of the judge failed for {arm}" for arm, count in results.get("failed", {}).items())
            return f"overall of 10: {overall}; against {results['reference_arm']}: {differences}{failed}"
        case _:
            return ", ".join(f"{name} {value}" for name, value in results.items() if isinstance(value, (int, str)))


def _kept(name: str, entry: dict[str, Any]) -> str:
    good = f" ({100 * entry['good_share']:.0f} % good in both dimensions)" if "good_share" in entry else ""
    return f"{name} {entry['count']:,}{good}"


def _facts(started: datetime, seconds: float, seed: int) -> dict[str, Any]:
    return {
        "started": started.isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),
        "command": " ".join(["pipeline", *sys.argv[1:]]),
        "seed": seed,
        "code": _code_version(),
        "machine": {"system": platform.platform(), "processor": platform.machine(), "cores": os.cpu_count(), "gpus": _gpus()},
        "python": platform.python_version(),
        "packages": {name: importlib.metadata.version(name) for name in PACKAGES},
    }


def _code_version() -> str:
    """Package version, with the commit when the code is a git checkout."""
    version = importlib.metadata.version("edit-reward-pipeline")
    here = Path(__file__).resolve().parent.parent
    answer = subprocess.run(["git", "-C", str(here), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return f"{version}+{answer.stdout.strip()}" if answer.returncode == 0 and answer.stdout.strip() else version


def _gpus() -> list[str]:
    import torch

    return [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
