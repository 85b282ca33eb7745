"""The paper's Tables 4 and 7 in small: the cells of configs/ablations, trained and measured on the toy world over several seeds.

    python benchmarks/ablations.py --seeds 0 1 2

A cell is `pipeline run all --config configs/ablations/world.yaml` with the values of the cell's file as overrides. Cells of a seed share
sources, candidates and ratings (their steps are copied); finished steps are skipped. Intervals are t intervals over seeds, of which
each has its own world, raters and initial weights. Writes the tables into benchmarks/RESULTS.md between its markers.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from scipy.stats import t

from benchmarks import results

ROOT = Path(__file__).resolve().parent.parent
CELLS = ROOT / "configs" / "ablations"
FOLLOW, QUALITY = "instruction_following", "visual_quality"


@dataclass(frozen=True)
class Cell:
    """A row: what it is, the file that says how, and what we change beyond the paper's cell."""

    name: str
    words: str
    file: str
    changes: tuple[str, ...] = ()

    def overrides(self) -> list[str]:
        """The values of the file, without what belongs to the paper's scale, as overrides."""
        values = yaml.load((CELLS / f"{self.file}.yaml").read_text(), Loader=yaml.BaseLoader)
        assert "backbone" not in values["reward"].get("model", {}), f"{self.file} is about a backbone, which the toy world has not"
        return [*_flat({key: values[key] for key in ("preferences", "reward") if key in values}), *self.changes]


REFERENCE = Cell("multi-mean", "V: pairwise, several heads, mean", "table4-multi-mean")
TABLE_4 = (
    Cell("regression", "I: pointwise regression of the sum", "table4-regression"),
    Cell("shared-mean", "II: pairwise, shared head, mean", "table4-shared-mean"),
    Cell("multi-min", "III: pairwise, several heads, minimum", "table4-multi-min"),
    Cell("multi-sum", "IV: pairwise, several heads, sum", "table4-multi-sum"),
    REFERENCE,
    Cell("per-dimension", "V with terms per dimension (our default)", "table4-multi-mean", ("reward.loss.per_dimension_weight=1",)),
)
TABLE_7 = (
    Cell("ties-off", "I: without disentangling", "table7-without-disentangling"),
    REFERENCE,
    Cell("ties-soft", "one pair with target 0.5 instead of two (ours)", "table4-multi-mean", ("preferences.ties=soft",)),
    Cell("ties-all", "every overall tie twice (released data)", "table4-multi-mean", ("preferences.ties=all",)),
)
SHARED = ("generate", "annotate")
"""Steps that all cells of a seed have in common."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "ablations", help="where the run directories go")
    parser.add_argument("--override", nargs="*", default=[], metavar="KEY.PATH=VALUE", help="for all cells, e.g. for a quick trial")
    parser.add_argument("--write", action=argparse.BooleanOptionalAction, default=True, help="write the tables into RESULTS.md")
    options = parser.parse_args()
    cells = list(dict.fromkeys([REFERENCE, *TABLE_4, *TABLE_7]))
    measured: dict[str, list[dict[str, Any]]] = {cell.name: [] for cell in cells}
    for seed in options.seeds:
        for cell in cells:
            run = options.runs / f"seed{seed}" / cell.name
            if cell is not REFERENCE:
                share(options.runs / f"seed{seed}" / REFERENCE.name, run)
            pipeline("run", "all", "--config", CELLS / "world.yaml", "--run", run, f"seed={seed}", *cell.overrides(), *options.override)
            measured[cell.name].append(json.loads((run / "evaluate-reward" / "evaluation.json").read_text())["against"])
    command = " ".join(["python benchmarks/ablations.py --seeds", *map(str, options.seeds)])
    command += f" --override {' '.join(options.override)}" if options.override else ""
    text = report(measured, command, len(options.seeds))
    print(text)
    if options.write:
        results.write("ablations", text)
    return 0


def share(done: Path, run: Path) -> None:
    """Copy finished steps into another run directory; a copy that was broken off is made again."""
    for step in SHARED:
        if not (run / step / "index.json").exists():
            shutil.rmtree(run / step, ignore_errors=True)
            partial = run / f"{step}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            shutil.copytree(done / step, partial)
            partial.rename(run / step)


def pipeline(*arguments: object) -> None:
    """Run the command line in this interpreter's environment; a failure ends the benchmark."""
    subprocess.run([sys.executable, "-m", "pipeline.cli", *map(str, arguments)], cwd=ROOT, check=True)


def report(measured: dict[str, list[dict[str, Any]]], command: str, seeds: int) -> str:
    """Both tables as Markdown."""
    over = f"mean over {seeds} seeds with its 95 % t interval" if seeds > 1 else "one seed, no interval"
    lines = [
        f"Command: `{command}`",
        f"Measured {datetime.now(UTC):%Y-%m-%d} on {platform.machine()}, Python {platform.python_version()}; {over}.",
        "",
        "Accuracy on strict held-out pairs against the ground-truth quality; ECE, and accuracy of the confident half minus the rest,",
        "against the raters' labels. All cells read a clip and a short rubric per dimension, which a shared head needs, after the same",
        "warm-up on captions; sizes are those of demo-small.yaml. Regression trains no sigma: its P means nothing.",
        "",
    ]
    for title, cells in (("Table 4 in small", TABLE_4), ("Table 7 in small (all: pairwise, several heads, mean)", TABLE_7)):
        lines += [f"{title}:", "", "| variant | accuracy | minus V | IF head on IF | VQ head on VQ | ECE | confident half minus rest |"]
        lines.append("| --- " * 7 + "|")
        lines += [row(cell, measured[cell.name], measured[REFERENCE.name]) for cell in cells] + [""]
    return "\n".join(lines).rstrip()


def row(cell: Cell, own: Sequence[dict[str, Any]], reference: Sequence[dict[str, Any]]) -> str:
    """A cell over its seeds; the difference is taken seed by seed."""
    accuracy, theirs = overall(own), overall(reference)
    columns = [interval(accuracy), "" if cell is REFERENCE else interval([a - b for a, b in zip(accuracy, theirs, strict=True)], "+.3f")]
    columns += [f"{statistics.mean(entry['truth']['heads'][name][name]['value'] for entry in own):.3f}" for name in (FOLLOW, QUALITY)]
    if cell.name == "regression":
        columns += ["–", "–"]
    else:
        columns.append(f"{statistics.mean(entry['ratings']['calibration']['ece']['value'] for entry in own):.3f}")
        columns.append(interval([entry["ratings"]["confidence"]["difference"]["value"] for entry in own], "+.3f"))
    return f"| {cell.words} | " + " | ".join(columns) + " |"


def overall(entries: Sequence[dict[str, Any]]) -> list[float]:
    """Overall accuracy per seed."""
    return [entry["truth"]["pair_accuracy"]["overall"]["value"] for entry in entries]


def interval(values: Sequence[float], form: str = ".3f") -> str:
    """Mean over seeds and its t interval (Student 1908), which needs two seeds or more."""
    mean = statistics.mean(values)
    if len(values) < 2:
        return f"{mean:{form}}"
    half = float(t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / len(values) ** 0.5
    return f"{mean:{form}} [{mean - half:{form}}, {mean + half:{form}}]"


def _flat(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, entry in value.items():
            yield from _flat(entry, f"{path}.{key}" if path else key)
    else:
        yield f"{path}={value}"


if __name__ == "__main__":
    sys.exit(main())
