"""Does choosing what to annotate next pay? Learning curves of `annotate next` against random choice on the embedded world.

    python benchmarks/active_annotation.py --seeds 0 1 2

Per seed: a pool of groups with simulated ratings that stay hidden until a group is chosen. Both strategies begin with the same random
groups and the same stand-in pretraining. At every budget the reward model is trained anew from there, its accuracy on held-out groups is
measured against the true levels, and the next groups are chosen with it. Writes the table into benchmarks/RESULTS.md between its markers.
"""

from __future__ import annotations

import argparse
import copy
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import results
from pipeline import config as configurations
from reward import RatedGroup, RewardModel, pretrain, train
from reward.evaluation import overall_accuracy, predict_groups
from reward.metrics import Interval, Prediction, labelled_pairs
from stages.groups import load_groups, with_truth
from stages.ids import uniform
from stages.ratings.information import Group, choose
from stages.rundir import RunDir
from stages.train_reward import _captioned
from stages.training_group import seeded

ROOT = Path(__file__).resolve().parent.parent
STRATEGIES = ("random", "information")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--budgets", type=int, nargs="+", default=[100, 200, 400, 800], help="rated groups at which a model is trained")
    parser.add_argument("--pool", type=int, default=1600, help="groups to choose from")
    parser.add_argument("--held-out", type=int, default=250)
    parser.add_argument("--steps", type=int, default=250, help="training steps at every budget")
    parser.add_argument("--config", type=Path, default=ROOT / "configs" / "demo-small.yaml")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs", help="where the run directories and finished figures go")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="more settings for the steps, e.g. ray.temp_dir=/tmp/r")
    parser.add_argument("--write", action=argparse.BooleanOptionalAction, default=True, help="write the table into RESULTS.md")
    options = parser.parse_args()
    torch.set_num_threads(1)
    measured = []
    for seed in options.seeds:
        run = options.runs / f"active-{options.config.stem}-pool{options.pool}-seed{seed}"
        done = run / f"curves-{'-'.join(map(str, options.budgets))}-{options.steps}.json"
        if not done.exists():
            rate_everything(options, run, seed)
            done.write_text(json.dumps(curves(options, run, seed), indent=1))
        measured.append(json.loads(done.read_text()))
    text = table(options, measured)
    print(text)
    if options.write:
        results.write("active-annotation", text)
    return 0


def rate_everything(options: argparse.Namespace, run: Path, seed: int) -> None:
    """Candidates, simulated ratings of all of them, and their preferences."""
    only = [f"seed={seed}", f"generate.sources.train={options.pool}", f"generate.sources.validation={options.held_out}"]
    only += ["annotate.simulate.overlap=0", "filter=null", "finetune=null", "evaluate_editor=null", *options.set]
    for step in (["run", "generate"], ["annotate", "simulate"], ["annotate", "ingest", "--file"], ["run", "preferences"]):
        files = sorted((run / "annotate" / "simulated").glob("*.csv")) if step[-1] == "--file" else []
        given = [argument for file in files for argument in ("--file", str(file))] if files else []
        command = [*step[: 2 if files else None], *given, "--config", str(options.config), "--run", str(run), *only]
        subprocess.run([sys.executable, "-m", "pipeline.cli", *command], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def curves(options: argparse.Namespace, run: Path, seed: int) -> dict[str, Any]:
    """Accuracy at every budget by strategy, the kinds that were chosen, and the seconds it took."""
    started = time.monotonic()
    flow = configurations.load(str(options.config), (f"seed={seed}",)).flow
    runs = RunDir(run)
    pool = {group.source_id: group for group in load_groups(runs, "train")}
    held_out = load_groups(runs, "validation")
    truth = with_truth(held_out, runs)
    assert truth is not None, "the embedded world knows the true levels"
    examples = _captioned(flow)
    base = RewardModel.from_config(flow.reward.model, [g.instruction for g in pool.values()] + [e.instruction for e in examples], seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        pretrain(
            model=base,
            config=seeded(flow.reward.pretraining, seed),
            examples=examples,
            checkpoint_dir=Path(folder),
            on_metrics=lambda _: None,
        )
    order = sorted(pool, key=lambda name: (uniform("next to annotate", seed, name), name))
    first, rest = options.budgets[0], options.budgets[1:]
    model, accuracy = trained(options, flow, base, [pool[name] for name in order[:first]], truth, seed)
    found: dict[str, Any] = {"seed": seed, "accuracy": {name: {str(first): accuracy} for name in STRATEGIES}, "kinds": {}}
    for strategy in STRATEGIES:
        rated, asked = order[:first], model
        for budget in rest:
            more = budget - len(rated)
            rated = order[:budget] if strategy == "random" else rated + chosen(asked, pool, rated, held_out, more)
            asked, accuracy = trained(options, flow, base, [pool[name] for name in rated], truth, seed)
            found["accuracy"][strategy][str(budget)] = accuracy
            print(f"seed {seed}, {strategy}, {budget}: {accuracy['value']:.4f}", file=sys.stderr, flush=True)
        found["kinds"][strategy] = dict(sorted(Counter(pool[name].task for name in rated).items()))
    return found | {"seconds": round(time.monotonic() - started)}


def trained(
    options: argparse.Namespace, flow: Any, base: RewardModel, groups: list[RatedGroup], truth: list[RatedGroup], seed: int
) -> tuple[RewardModel, dict[str, float]]:
    """A model trained on the groups from the pretrained one, and its accuracy on the held-out groups."""
    model = copy.deepcopy(base)
    training = seeded(flow.reward.training, seed).model_copy(update={"steps": options.steps})
    with tempfile.TemporaryDirectory() as folder:
        result = train(
            model=model,
            config=training,
            loss=flow.reward.loss,
            groups=groups,
            validation=[],
            checkpoint_dir=Path(folder),
            on_metrics=lambda _: None,
        )
    predictions = predict_groups(model=result.model, groups=truth)
    accuracy: Interval = overall_accuracy(labelled_pairs(truth, predictions), seed=seed)
    return result.model, {"value": accuracy.estimate, "low": accuracy.low, "high": accuracy.high}


def chosen(model: RewardModel, pool: dict[str, RatedGroup], rated: list[str], held_out: list[RatedGroup], count: int) -> list[str]:
    """What `annotate next` would choose."""
    unrated = [group for name, group in pool.items() if name not in set(rated)]
    asked = [_group(group, scores) for group, scores in zip(unrated, predict_groups(model=model, groups=unrated), strict=True)]
    known = [_group(group, scores, True) for group, scores in zip(held_out, predict_groups(model=model, groups=held_out), strict=True)]
    return [choice.group_id for choice in choose(asked, known, Counter(pool[name].task for name in rated), count)]


def _group(group: RatedGroup, scores: Prediction, rated: bool = False) -> Group:
    given = np.array([sum(score.values()) for score in group.scores]) if rated else None
    return Group(group.source_id, group.task, scores.overall_mean, scores.overall_sigma, given)


def table(options: argparse.Namespace, measured: list[dict[str, Any]]) -> str:
    """The curves as Markdown, and the differences at equal budgets."""
    seeds = " ".join(str(entry["seed"]) for entry in measured)
    command = (
        f"python benchmarks/active_annotation.py --seeds {seeds} --budgets {' '.join(map(str, options.budgets))} --pool {options.pool}"
    )
    lines = [
        f"Command: `{command} --held-out {options.held_out} --steps {options.steps}`",
        f"Measured {datetime.now(UTC):%Y-%m-%d} on {platform.machine()}, Python {platform.python_version()}, one thread; "
        f"{sum(entry['seconds'] for entry in measured) / 60:.0f} min for all seeds on a busy machine.",
        "",
        f"Accuracy on strict pairs of {options.held_out} held-out groups against the true levels, 95 % intervals over groups; "
        f"{options.steps} steps at every budget, {options.config.name}.",
        "",
        "| seed | choice | " + " | ".join(f"{budget} groups" for budget in options.budgets) + " |",
        "| --- " * (2 + len(options.budgets)) + "|",
    ]
    for entry in measured:
        for strategy in STRATEGIES:
            cells = [entry["accuracy"][strategy][str(budget)] for budget in options.budgets]
            lines.append(
                f"| {entry['seed']} | {strategy} | "
                + " | ".join(f"{c['value']:.3f} [{c['low']:.3f}, {c['high']:.3f}]" for c in cells)
                + " |"
            )
    lines += ["", "Information minus random at the same budget, per seed, and mean ± standard error over seeds:", ""]
    lines += ["| " + " | ".join(f"{budget} groups" for budget in options.budgets[1:]) + " |", "| --- " * (len(options.budgets) - 1) + "|"]
    cells = []
    for budget in options.budgets[1:]:
        gaps = np.array(
            [e["accuracy"]["information"][str(budget)]["value"] - e["accuracy"]["random"][str(budget)]["value"] for e in measured]
        )
        error = f" ± {gaps.std(ddof=1) / len(gaps) ** 0.5:.3f}" if len(gaps) > 1 else ""
        cells.append(", ".join(f"{gap:+.3f}" for gap in gaps) + f"; {gaps.mean():+.3f}{error}")
    lines += ["| " + " | ".join(cells) + " |", "", "Kinds of edit among the groups rated in the end:", ""]
    kinds = sorted({kind for entry in measured for kind in entry["kinds"]["information"]})
    lines += ["| seed | choice | " + " | ".join(kinds) + " |", "| --- " * (2 + len(kinds)) + "|"]
    for entry in measured:
        for strategy in STRATEGIES:
            lines.append(
                f"| {entry['seed']} | {strategy} | " + " | ".join(str(entry["kinds"][strategy].get(kind, 0)) for kind in kinds) + " |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
