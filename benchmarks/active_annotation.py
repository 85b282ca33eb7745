"""Is active selection better than random selection? Learning curves of `annotate next` and of other choices on the toy world.

    python benchmarks/active_annotation.py --seeds 0 1 2

Per seed: a pool of groups with simulated ratings that stay hidden until a group is chosen. All choices begin with the same random
groups and the same warm-up. At every budget the reward model is trained anew from there, its accuracy on held-out groups is
measured against the ground-truth quality, and the next groups are chosen with it:

- random: a draw, `annotate next --strategy random`;
- information: `annotate next --strategy information`;
- stratified: a draw with as many groups of every kind of edit as its share of the pool;
- committee: stratified, and of a kind the groups on whose pairs two models disagree most that differ in the heads' weights and the order
  of the groups: entropy of their mean P(a better) less the mean of their entropies (Houlsby et al. 2011; Seung et al. 1992);
- hindsight: the groups in which the model orders most pairs otherwise than their ground-truth quality does, which nobody can know.

Writes the table into benchmarks/RESULTS.md between its markers.
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
from scipy.special import entr

from benchmarks import results
from pipeline import config as configurations
from reward import RatedGroup, RewardModel, pretrain, train
from reward.evaluation.evaluate import overall_accuracy, predict_groups
from reward.evaluation.metrics import Prediction, labelled_pairs
from reward.model.comparison import preference_probability
from stages.annotate.active.information import ScoredGroup, choose
from stages.engine.ids import uniform
from stages.engine.rundir import RunDir
from stages.engine.training_group import seeded
from stages.preferences.groups import load_groups, with_truth
from stages.train_reward.world import captioned

ROOT = Path(__file__).resolve().parent.parent
MEMBER = 1000
"""Added to the seed for the second member of the committee."""
STRATEGIES = ("random", "information", "stratified", "committee", "hindsight")


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
    assert truth is not None, "the toy world knows the ground-truth quality"
    examples = captioned(flow.reward.caption_items, seed=flow.seed, world=flow.world)
    words = [group.instruction for group in pool.values()] + [example.instruction for example in examples]
    base = RewardModel.from_config(flow.reward.model, words, seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        pretrain(
            model=base,
            config=seeded(flow.reward.pretraining, seed),
            examples=examples,
            checkpoint_dir=Path(folder),
            on_metrics=lambda _: None,
        )
    known = {group.source_id: group for group in with_truth(list(pool.values()), runs) or []}
    order = sorted(pool, key=lambda name: (uniform("next to annotate", seed, name), name))
    first, rest = options.budgets[0], options.budgets[1:]

    def fitted(names: list[str], member: int = 0) -> RewardModel:
        model = copy.deepcopy(base)
        if member:
            model.heads.load_state_dict(RewardModel.from_config(flow.reward.model, words, seed=seed + MEMBER).heads.state_dict())
        return trained(options, flow, model, [pool[name] for name in names], seed + MEMBER * member)

    start = [fitted(order[:first]), fitted(order[:first], member=1)]
    found: dict[str, Any] = {"seed": seed, "accuracy": {}, "kinds": {}}
    for strategy in STRATEGIES:
        rated, models = order[:first], start
        accuracies = {str(first): accuracy_of(models[0], truth, seed)}
        for budget in rest:
            left = [pool[name] for name in order if name not in set(rated)]
            rated = rated + chosen(strategy, models, left, [pool[name] for name in rated], held_out, known, budget - len(rated))
            members = 2 if strategy == "committee" and budget != rest[-1] else 1
            models = [fitted(rated, member) for member in range(members)]
            accuracies[str(budget)] = accuracy_of(models[0], truth, seed)
            print(f"seed {seed}, {strategy}, {budget}: {accuracies[str(budget)]['value']:.4f}", file=sys.stderr, flush=True)
        found["accuracy"][strategy] = accuracies
        found["kinds"][strategy] = dict(sorted(Counter(pool[name].task for name in rated).items()))
    return found | {"seconds": round(time.monotonic() - started)}


def trained(options: argparse.Namespace, flow: Any, model: RewardModel, groups: list[RatedGroup], seed: int) -> RewardModel:
    """The model, trained on the groups."""
    with tempfile.TemporaryDirectory() as folder:
        return train(
            model=model,
            config=seeded(flow.reward.training, seed).model_copy(update={"steps": options.steps}),
            loss=flow.reward.loss,
            groups=groups,
            validation=[],
            checkpoint_dir=Path(folder),
            on_metrics=lambda _: None,
        ).model


def accuracy_of(model: RewardModel, truth: list[RatedGroup], seed: int) -> dict[str, float | None]:
    """Accuracy on strict pairs of groups that are labelled with the ground-truth quality."""
    accuracy = overall_accuracy(labelled_pairs(truth, predict_groups(model=model, groups=truth)), seed=seed)
    return accuracy.to_json(decimals=None)


def chosen(
    strategy: str,
    models: list[RewardModel],
    left: list[RatedGroup],
    rated: list[RatedGroup],
    held_out: list[RatedGroup],
    truth: dict[str, RatedGroup],
    count: int,
) -> list[str]:
    """Names of the groups to rate next. left: the candidates, in the order of the draw; truth: groups with their ground-truth quality."""
    if strategy == "random":
        return [group.source_id for group in left[:count]]
    if strategy == "stratified":
        return by_kind(left, rated, count)
    scores = [predict_groups(model=model, groups=left) for model in models]
    if strategy == "information":
        asked = [_group(group, of) for group, of in zip(left, scores[0], strict=True)]
        known = [_group(group, of, True) for group, of in zip(held_out, predict_groups(model=models[0], groups=held_out), strict=True)]
        return [choice.group_id for choice in choose(asked, known, Counter(group.task for group in rated), count)]
    if strategy == "committee":
        worth = [_disagreement(of_group) for of_group in zip(*scores, strict=True)]
    else:
        worth = [_errors(truth[group.source_id], of) for group, of in zip(left, scores[0], strict=True)]
    ranked = [left[place] for place in np.argsort(-np.array(worth), kind="stable")]
    return by_kind(ranked, rated, count) if strategy == "committee" else [group.source_id for group in ranked[:count]]


def by_kind(ranked: list[RatedGroup], rated: list[RatedGroup], count: int) -> list[str]:
    """The first groups of every kind, so many that the kinds' shares of all rated groups become those of all groups."""
    there, have = Counter(group.task for group in [*ranked, *rated]), Counter(group.task for group in rated)
    queues = {kind: [group.source_id for group in ranked if group.task == kind] for kind in sorted(there)}
    names: list[str] = []
    while len(names) < count:
        kind = max((kind for kind, queue in queues.items() if queue), key=lambda kind: there[kind] / (have[kind] + 1))
        names.append(queues[kind].pop(0))
        have[kind] += 1
    return names


def _disagreement(members: tuple[Prediction, ...]) -> float:
    a, b = np.triu_indices(len(members[0].overall_mean), 1)
    better = np.stack(
        [preference_probability(m.overall_mean[a] - m.overall_mean[b], m.overall_sigma[a], m.overall_sigma[b]) for m in members]
    )  # [member, pair]
    mean = better.mean(0)
    return float((entr(mean) + entr(1 - mean) - (entr(better) + entr(1 - better)).mean(0)).sum())


def _errors(group: RatedGroup, scores: Prediction) -> int:
    a, b = np.triu_indices(len(group.candidates), 1)
    overall = np.array([sum(score.values()) for score in group.scores])
    return int(((scores.overall_mean[a] - scores.overall_mean[b]) * (overall[a] - overall[b]) < 0).sum())


def _group(group: RatedGroup, scores: Prediction, rated: bool = False) -> ScoredGroup:
    given = np.array([sum(score.values()) for score in group.scores]) if rated else None
    return ScoredGroup(group.source_id, group.task, scores.overall_mean, scores.overall_sigma, given)


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
        f"Accuracy on strict pairs of {options.held_out} held-out groups against the ground-truth quality, 95 % intervals over groups; "
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
    later = options.budgets[1:]
    lines += ["", "Minus random at the same budget: per seed; mean ± standard error over seeds:", ""]
    lines += ["| choice | " + " | ".join(f"{budget} groups" for budget in later) + " |", "| --- " * (1 + len(later)) + "|"]
    for strategy in STRATEGIES[1:]:
        cells = []
        for budget in map(str, later):
            gaps = np.array([e["accuracy"][strategy][budget]["value"] - e["accuracy"]["random"][budget]["value"] for e in measured])
            error = f" ± {gaps.std(ddof=1) / len(gaps) ** 0.5:.3f}" if len(gaps) > 1 else ""
            cells.append(", ".join(f"{gap:+.3f}" for gap in gaps) + f"; {gaps.mean():+.3f}{error}")
        lines.append(f"| {strategy} | " + " | ".join(cells) + " |")
    lines += ["", "Kinds of edit among the groups rated in the end:", ""]
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
