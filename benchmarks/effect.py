"""Measure the effect of the whole loop over several seeds, and what the per-dimension loss term is for.

    python benchmarks/effect.py --seeds 0 1 2

Runs `pipeline run all --config configs/demo.yaml seed=N` per seed (finished steps are skipped) and, for the identification check,
trains the reward model once more per seed with the paper's literal loss (per-dimension weight 0). Writes the table into
benchmarks/RESULTS.md between its markers and exits with 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import results

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--config", type=Path, default=Path("configs/demo.yaml"), help="relative to the repository")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs", help="where the run directories go")
    parser.add_argument("--write", action=argparse.BooleanOptionalAction, default=True, help="write the table into RESULTS.md")
    options = parser.parse_args()
    options.config = (ROOT / options.config).resolve()
    measured = []
    for seed in options.seeds:
        run = options.runs / f"effect-{options.config.stem}-seed{seed}"
        pipeline("run", "all", "--config", options.config, "--run", run, f"seed={seed}")
        literal = literal_loss(options.config, run, seed)
        measured.append(read(run) | {"seed": seed, "literal": read_heads(literal)})
    command = f"python benchmarks/effect.py --config {options.config.relative_to(ROOT)} --seeds {' '.join(map(str, options.seeds))}"
    text, missed = table(measured, command)
    print(text)
    if options.write:
        results.write("effect", text)
    for line in missed:
        print(f"missed: {line}", file=sys.stderr)
    return 1 if missed else 0


def pipeline(*arguments: object) -> None:
    """Run the command line in this interpreter's environment; a failure ends the benchmark."""
    subprocess.run([sys.executable, "-m", "pipeline.cli", *map(str, arguments)], cwd=ROOT, check=True)


def literal_loss(config: Path, run: Path, seed: int) -> Path:
    """The same ratings, the paper's literal loss: only the aggregated score is ranked."""
    literal = run.with_name(f"{run.name}-literal")
    only = ["filter=null", "finetune=null", "evaluate_editor=null", "reward.loss.per_dimension_weight=0", f"seed={seed}"]
    pipeline("run", "all", "--config", config, "--run", literal, *only)
    return literal


def read(run: Path) -> dict[str, Any]:
    """The figures of one run."""
    reward = json.loads((run / "evaluate-reward" / "evaluation.json").read_text())["against"]["truth"]
    editor = json.loads((run / "evaluate-editor" / "evaluation.json").read_text())
    selections = json.loads((run / "filter" / "index.json").read_text())["results"]["selections"]
    good = {name: entry["good_share"] for name, entry in selections.items()}
    raters = json.loads((run / "preferences" / "statistics.json").read_text())["rater_agreement"]["overall"]
    return {"reward": reward, "editor": editor, "good": good, "heads": reward["heads"], "raters": raters}


def read_heads(run: Path) -> dict[str, Any]:
    reward = json.loads((run / "evaluate-reward" / "evaluation.json").read_text())["against"]["truth"]
    return {"heads": reward["heads"], "accuracy": reward["pair_accuracy"]["overall"]}


def table(measured: list[dict[str, Any]], command: str) -> tuple[str, list[str]]:
    """The results as Markdown, and the targets that were missed."""
    missed = []
    lines = [
        f"Command: `{command}`",
        f"Measured {datetime.now(UTC):%Y-%m-%d} on {platform.machine()}, Python {platform.python_version()}.",
        "",
    ]
    lines += [
        "Held-out pairs against the ground-truth quality; strict pairs, intervals over sources; rater against rater: tie half, tie wrong.",
        "",
        "| seed | pair accuracy (95 %) | closeness to the source | raters themselves | rater against rater | ECE | confident half / rest |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for entry in measured:
        reward = entry["reward"]
        accuracy, baselines = reward["pair_accuracy"]["overall"], reward["baselines"]
        confidence = reward["confidence"]
        lines.append(
            f"| {entry['seed']} | {interval(accuracy)} | {baselines['closeness to the source']['value']:.3f} "
            f"| {baselines['the raters themselves']['value']:.3f} "
            f"| {entry['raters']['rater_predicts_rater']['value']:.3f} / {entry['raters']['rater_predicts_rater_ties_wrong']['value']:.3f} "
            f"| {reward['calibration']['ece']['value']:.3f} "
            f"| {confidence['most_confident_half']['value']:.3f} / {confidence['rest']['value']:.3f} |"
        )
        if accuracy["value"] < 0.82:
            missed.append(f"seed {entry['seed']}: pair accuracy {accuracy['value']:.3f} is below 0.82")
    lines += [
        "",
        "Accuracy of each head on each dimension, with the per-dimension term and with the paper's literal loss (aggregate only):",
        "",
    ]
    lines += ["| seed | loss | overall | IF head on IF / on VQ | VQ head on VQ / on IF |", "| --- | --- | --- | --- | --- |"]
    for entry in measured:
        both = {
            "with per-dimension term": (entry["reward"]["pair_accuracy"]["overall"], entry["heads"]),
            "aggregate only": (entry["literal"]["accuracy"], entry["literal"]["heads"]),
        }
        for loss, (accuracy, heads) in both.items():
            follow, quality = heads["instruction_following"], heads["visual_quality"]
            lines.append(
                f"| {entry['seed']} | {loss} | {accuracy['value']:.3f} "
                f"| {follow['instruction_following']['value']:.3f} / {follow['visual_quality']['value']:.3f} "
                f"| {quality['visual_quality']['value']:.3f} / {quality['instruction_following']['value']:.3f} |"
            )
    lines += ["", "Share of edits good in both dimensions (ground-truth quality 3 or 4):", ""]
    names = list(measured[0]["good"])
    lines += ["| seed | " + " | ".join(names) + " |", "| --- " * (len(names) + 1) + "|"]
    for entry in measured:
        lines.append(f"| {entry['seed']} | " + " | ".join(f"{entry['good'][name]:.3f}" for name in names) + " |")
        if entry["good"]["selected"] < 0.75:
            missed.append(f"seed {entry['seed']}: {entry['good']['selected']:.3f} of the selected edits are good, below 0.75")
    arms = list(measured[0]["editor"]["arms"])
    lines += ["", "Benchmark overall (0..10) per arm:", "", "| seed | " + " | ".join(arms) + " |", "| --- " * (len(arms) + 1) + "|"]
    for entry in measured:
        lines.append(f"| {entry['seed']} | " + " | ".join(f"{entry['editor']['arms'][arm]['overall']:.2f}" for arm in arms) + " |")
    differences = list(measured[0]["editor"]["differences"])
    lines += [
        "",
        "Paired difference to the full arm, 95 % interval over items:",
        "",
        "| seed | " + " | ".join(differences) + " |",
        "| --- " * (len(differences) + 1) + "|",
    ]
    for entry in measured:
        found = entry["editor"]["differences"]
        lines.append(f"| {entry['seed']} | " + " | ".join(interval(found[arm], "+.2f") for arm in differences) + " |")
        if found["selected"]["low"] <= 0:
            missed.append(f"seed {entry['seed']}: selected is not above full, interval {interval(found['selected'], '+.2f')}")
    return "\n".join(lines), missed


def interval(value: dict[str, Any], form: str = ".3f") -> str:
    return f"{value['value']:{form}} [{value['low']:{form}}, {value['high']:{form}}]"


if __name__ == "__main__":
    sys.exit(main())
