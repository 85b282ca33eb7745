"""The paper's presentation on the toy world: two separate images and a reward token per dimension, over several seeds.

    python benchmarks/two_images.py --seeds 0 1 2

Per seed: sources, candidates, simulated ratings and preferences of configs/demo-images.yaml, made by the functions of the steps, without
Ray; then warm-up, training on preferences, and the accuracy on held-out groups against the ground-truth quality. A training that was
broken off continues; a finished one is not made again. Writes the table into benchmarks/RESULTS.md between its markers and exits with 1
when a seed is below 0.84.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from benchmarks import results
from benchmarks.ablations import interval as over_seeds
from pipeline import config as configurations
from reward import RatedGroup, RewardModel, pretrain, train
from reward.config import DIMENSIONS
from reward.evaluation.evaluate import evaluate, predict_groups
from reward.trainer.loop import Metrics
from stages.annotate.config import SimulatedRaters
from stages.annotate.ratings.groups import complete_groups
from stages.annotate.ratings.rating_task import PRODUCTION, RatingTask, Scale
from stages.annotate.simulate import Levels, raters_of
from stages.config import FlowConfig
from stages.datasets import readers
from stages.datasets.config import VALIDATION_SHARE
from stages.engine import contracts, storage
from stages.engine.ids import settings_hash
from stages.engine.training_group import seeded
from stages.generate import candidate_plan, draw
from stages.generate.edit_task import EditTask
from stages.generate.edits import EditWork
from stages.generate.rows import source_row
from stages.preferences import step as preferences
from stages.preferences.groups import RatedRows, labelled
from stages.train_reward.world import captioned
from stages.world import raters

ROOT = Path(__file__).resolve().parent.parent
CONFIG = ROOT / "configs" / "demo-images.yaml"
TARGET = 0.84


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "two-images", help="where checkpoints and finished figures go")
    parser.add_argument("--override", nargs="*", default=[], metavar="KEY.PATH=VALUE", help="for all trainings, e.g. for a quick trial")
    parser.add_argument("--write", action=argparse.BooleanOptionalAction, default=True, help="write the table into RESULTS.md")
    options = parser.parse_args()
    torch.set_num_threads(1)
    try:
        flows = [configurations.load(CONFIG, [f"seed={seed}", *options.override]).flow for seed in options.seeds]
    except ValueError as error:
        parser.error(str(error))
    measured = [(flow.seed, measure(flow, options.runs)) for flow in flows]
    text = table(options, measured)
    print(text)
    if options.write:
        results.write("two-images", text)
    missed = [f"seed {seed} is below {TARGET}" for seed, found in measured if found["accuracy"]["value"] < TARGET]
    for line in missed:
        print(f"missed: {line}", file=sys.stderr)
    return 1 if missed else 0


def measure(flow: FlowConfig, runs: Path) -> dict[str, Any]:
    """The figures of one training, from its file if they are there."""
    folder = runs / settings_hash(flow)
    done = folder / "figures.json"
    if not done.exists():
        found = json.dumps(trained(flow, folder), indent=1)
        done.write_text(found)
    return json.loads(done.read_text())


def groups_of(flow: FlowConfig) -> tuple[dict[str, list[RatedGroup]], dict[str, Levels]]:
    """Rated groups by split, and the ground-truth quality of every candidate."""
    config, simulate = flow.generate, flow.annotate.simulate
    assert config is not None and simulate is not None
    assert config.sources is not None
    editors = [(editor, EditWork(flow, number)) for number, editor in enumerate(candidate_plan.planned(flow))]
    groups: dict[str, list[RatedGroup]] = defaultdict(list)
    truth: dict[str, Levels] = {}
    for piece in readers.plan(config.sources, seed=flow.seed, world=flow.world, unit_rows=config.unit_sources, edited=False):
        entries = [entry for entry in readers.load(piece) if isinstance(entry, readers.Edit)]
        table = contracts.table("sources", [source_row(entry, VALIDATION_SHARE) for entry in entries])
        sources = {row["source_id"]: row for row in table.to_pylist()}
        with tempfile.TemporaryDirectory() as folder:
            storage.publish_bytes(f"{folder}/sources.parquet", storage.table_bytes(table))
            made = []
            for number, (editor, edit) in enumerate(editors):
                rows = len(sources) * editor.count
                task = EditTask(f"{folder}/sources.parquet", rows, f"{folder}/{number}", config.failures.seconds)
                made.append(edit(task).tables["candidates"])
        drawn = draw.draw(draw.sound(pa.concat_tables(made)), config.annotate, flow.seed)
        chosen = {candidate for of_source in drawn.values() for candidate in of_source}
        candidates = {row["candidate_id"]: row for row in pa.concat_tables(made).to_pylist() if row["candidate_id"] in chosen}
        truth |= {name: json.loads(row["metadata"]) for name, row in candidates.items()}
        images = {name: row["image"]["bytes"] for name, row in candidates.items()}
        sampled: dict[str, tuple[str, ...]] = defaultdict(tuple)
        for name, row in candidates.items():
            sampled[row["source_id"]] += (name,)
        group_of = {name: row["source_id"] for name, row in candidates.items()}
        task = RatingTask({}, DIMENSIONS, Scale(1, 4), flow.annotate.rubric_version, group_of, sampled)
        complete, quarantined = complete_groups(pa.Table.from_pylist(list(ratings(task, truth, simulate, flow.seed))), task)
        assert not quarantined
        for group in complete:
            source = sources[group.source_id]
            rated = RatedRows()
            for row in preferences.rows(group, DIMENSIONS, flow.preferences.ties, split=source["split"]):
                rated.add(row)
            groups[source["split"]].append(rated.group(source, source["image"]["bytes"], images))
    return groups, truth


def ratings(task: RatingTask, truth: Mapping[str, Levels], config: SimulatedRaters, seed: int) -> Iterator[dict[str, Any]]:
    """What the simulated raters say of every candidate."""
    for group, candidates in task.sampled.items():
        for rater in raters_of(group, config, seed):
            for candidate in candidates:
                for dimension in task.dimensions:
                    score = raters.rate(rater, candidate, dimension, truth[candidate][dimension], seed)
                    given = {"source_id": group, "candidate_id": candidate, "dimension": dimension, "score": float(score)}
                    yield given | {"annotator": rater, "round": PRODUCTION}


def trained(flow: FlowConfig, folder: Path) -> dict[str, Any]:
    """Warm-up, training, evaluation. What was broken off continues from its checkpoints."""
    config, seed = flow.reward, flow.seed
    groups, truth = groups_of(flow)
    training, held_out = groups["train"], labelled(groups["validation"], truth)
    examples = captioned(config.caption_items, seed=seed, world=flow.world)
    words = sorted({group.instruction for group in training} | {example.instruction for example in examples})
    model = RewardModel.from_config(config.model, words, seed=seed)
    checkpoints = folder / "checkpoints"
    pretrain(
        model=model,
        config=seeded(config.pretraining, seed),
        examples=examples,
        checkpoint_dir=checkpoints / "pretraining",
        on_metrics=progress,
    )
    history = train(
        model=model,
        config=seeded(config.training, seed),
        loss=config.loss,
        groups=training,
        validation=held_out,
        checkpoint_dir=checkpoints / "training",
        on_metrics=progress,
    ).history
    seen = labelled(training[: len(held_out)], truth)
    found = evaluate(groups=held_out, predictions=predict_groups(model=model, groups=held_out), dimensions=DIMENSIONS)
    fitted = evaluate(groups=seen, predictions=predict_groups(model=model, groups=seen), dimensions=DIMENSIONS)
    shutil.rmtree(checkpoints)
    return {
        "groups": len(training),
        "held_out": len(held_out),
        "accuracy": found.accuracy.to_json(),
        "dimensions": {name: entry.to_json() for name, entry in found.dimensions.items() if entry},
        "training_accuracy": fitted.accuracy.to_json(),
        "curve": [[entry["step"], entry["validation/accuracy"]] for entry in history if "validation/accuracy" in entry],
    }


def progress(metrics: Metrics) -> None:
    """Show a step's loss and accuracy on standard error."""
    print(", ".join(f"{name} {metrics[name]:.4g}" for name in ("step", "loss", "validation/accuracy") if name in metrics), file=sys.stderr)


def table(options: argparse.Namespace, measured: Sequence[tuple[int, dict[str, Any]]]) -> str:
    """The results as Markdown."""
    command = f"python benchmarks/two_images.py --seeds {' '.join(map(str, options.seeds))}"
    command += f" --override {' '.join(options.override)}" if options.override else ""
    held_out, groups = measured[0][1]["held_out"], measured[0][1]["groups"]
    lines = [
        f"Command: `{command}`",
        f"Measured {datetime.now(UTC):%Y-%m-%d} on {platform.machine()}, Python {platform.python_version()}, one thread.",
        "",
        f"configs/demo-images.yaml: {groups:,} training groups. Strict pairs of {held_out} held-out groups against the ground-truth",
        "quality, 95 % intervals over sources. Last column: of as many training groups, whose ground-truth quality training does not see.",
        "",
        "| seed | after half of the steps | pair accuracy (95 %) | IF head on IF | VQ head on VQ | training groups |",
        "| --- " * 6 + "|",
    ]
    for seed, found in measured:
        accuracy = found["accuracy"]
        shown = [f"{found['curve'][len(found['curve']) // 2 - 1][1]:.3f}"]
        shown += [f"{accuracy['value']:.3f} [{accuracy['low']:.3f}, {accuracy['high']:.3f}]"]
        shown += [f"{found['dimensions'][name]['value']:.3f}" for name in DIMENSIONS]
        lines.append(f"| {seed} | " + " | ".join([*shown, f"{found['training_accuracy']['value']:.3f}"]) + " |")
    if len(measured) > 2:
        mean = over_seeds([found["accuracy"]["value"] for _, found in measured])
        lines += ["", f"Mean over {len(measured)} seeds with its 95 % t interval: {mean}."]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
