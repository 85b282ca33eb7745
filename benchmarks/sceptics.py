"""The toy experiment's answers to its sceptics: how much a perfect filter would gain, whether the clean triplets of the warm-up alone would
do, what happens with flaws that no rater has shown the reward model, and how much one training differs from the next.

    python benchmarks/sceptics.py --seed 0 --trainings 3

Two runs of configs/demo.yaml without its editors: in `seen` the noisy set has the flaws of the rated candidates, in `unseen` candidates and
noisy set have no kind of flaw in common. Then one base editor, and of each arm several trainings that differ in their seed only. Arms:
`full`, `random` and `selected` of the filter; `oracle`, as many edits of the best ground-truth quality; `warm-up`, the exact edits that
the reward model's warm-up saw. Figures are on the benchmark's held-out scenes, their intervals over items and trainings. What is
finished is not made again. Writes the table into benchmarks/RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import results
from benchmarks.effect import interval, pipeline
from finetune import codec
from finetune.data import EditSamples, squared
from finetune.editor import Editor
from finetune.training.small import train
from pipeline import config as configurations
from reward.inputs.decoding import decode
from stages.config import FlowConfig
from stages.datasets import readers, world
from stages.datasets.config import ALL_FLAWS
from stages.datasets.slices import Edit
from stages.engine.ids import uniform
from stages.engine.training_group import seeded
from stages.evaluate_editor.items.item import Item
from stages.evaluate_editor.judges.world import WorldJudge
from stages.finetune.config import FinetuneConfig
from stages.finetune.small import samples_of
from stages.train_reward.world import captioned

ROOT = Path(__file__).resolve().parent.parent
CONFIG = ROOT / "configs" / "demo.yaml"
SEEN = ("ghost", "wrong-value", "half", "no-op", "wrong-object", "noise", "blur", "jpeg")
UNSEEN = tuple(flaw for flaw in ALL_FLAWS if flaw not in SEEN)
OVERRIDES: dict[str, list[str]] = {
    "seen": [],
    "unseen": [f"world.flaws={json.dumps(SEEN)}", f"filter.input.flaws={json.dumps(UNSEEN)}"],
}
ARMS = {"seen": ("full", "random", "selected", "oracle", "warm-up"), "unseen": ("full", "random", "selected", "oracle")}
RESAMPLES = 10_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trainings", type=int, default=3, help="of each arm")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "sceptics", help="where runs, editors and finished figures go")
    parser.add_argument("--write", action=argparse.BooleanOptionalAction, default=True, help="write the table into RESULTS.md")
    options = parser.parse_args()
    torch.set_num_threads(1)
    command = f"Command: `python benchmarks/sceptics.py --seed {options.seed} --trainings {options.trainings}`"
    when = f"Measured {datetime.now(UTC):%Y-%m-%d} on {platform.machine()}, Python {platform.python_version()}."
    lines = [command, when, ""]
    lines += ["| flaws of the noisy set | arm | samples | good in both | overall (0..10) | less full | trainings |", "| --- " * 7 + "|"]
    for name in OVERRIDES:
        run = options.runs / f"{name}-seed{options.seed}"
        more = [*OVERRIDES[name], f"seed={options.seed}"]
        pipeline("run", "all", "--config", CONFIG, "--run", run, "finetune=null", "evaluate_editor=null", *more)
        flow = configurations.load(CONFIG, more).flow
        judged = {arm: scores_of(flow, options, run, arm) for arm in ("base", *ARMS[name])}
        for arm in judged:
            sizes = run.with_name(f"{run.name}-editors") / f"{arm}-0" / "samples.json"
            lines.append(row(name, arm, judged, json.loads(sizes.read_text()) if sizes.exists() else ["", ""], options.seed))
        lines.append(f"| {name} | | | | reward model on held-out candidates: {accuracy(run)} | | |")
    text = "\n".join(lines)
    print(text)
    if options.write:
        results.write("sceptics", text)
    return 0


def scores_of(flow: FlowConfig, options: argparse.Namespace, run: Path, arm: str) -> np.ndarray:
    """Overall scores [training, item] of an arm; the base was trained once, on a set of its own."""
    base = options.runs / f"base-seed{flow.seed}"
    config = flow.finetune
    assert isinstance(config, FinetuneConfig) and flow.world is not None
    if not (base / "editor").exists():
        samples = world.samples(config.base.edits, seed=flow.seed, world=flow.world, image_size=config.editor.image_size)
        patches = codec.fit(samples.source, config.editor.codec)
        editor = Editor.from_config(seeded(config.editor, flow.seed), patches, samples.instructions)
        trained(editor, samples, seeded(config.base.training, flow.seed), base)
    if arm == "base":
        return judged(flow, base)[None]
    found = []
    for number in range(options.trainings):
        folder = run.with_name(f"{run.name}-editors") / f"{arm}-{number}"
        if not (folder / "editor").exists():
            samples, good = samples_of_arm(flow, run, arm)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "samples.json").write_text(json.dumps([f"{len(samples):,}", f"{good:.2f}"]))
            training = seeded(config.training, flow.seed).model_copy(update={"seed": flow.seed + 1000 * number})
            trained(Editor.from_directory(base / "editor"), samples, training, folder)
        found.append(judged(flow, folder))
    return np.stack(found)


def trained(editor: Editor, samples: EditSamples, config: Any, folder: Path) -> None:
    """Train and save; what was broken off continues."""
    done = train(editor=editor, samples=samples, config=config, checkpoint_dir=folder / "checkpoints", on_metrics=lambda _: None)
    done.save(folder / "partial")
    (folder / "partial").rename(folder / "editor")
    print(f"trained {folder}", file=sys.stderr, flush=True)


def judged(flow: FlowConfig, folder: Path) -> np.ndarray:
    """Overall scores [item] of a trained editor."""
    path = folder / "overall.json"
    if not path.exists():
        config = flow.evaluate_editor
        assert config is not None and isinstance(config.judge, WorldJudge)
        items = [item for item in config.items.read(flow, 0, config.items.count(flow)) if isinstance(item, Item)]
        editor = Editor.from_directory(folder / "editor")
        sources, instructions = np.stack([item.image for item in items]), [item.instruction for item in items]
        edited = editor.edit(sources, instructions, sample_ids=[item.item_id for item in items])
        path.write_text(json.dumps([verdict.overall for verdict in config.judge.open(folder)(items, list(edited))]))
    return np.array(json.loads(path.read_text()))


def samples_of_arm(flow: FlowConfig, run: Path, arm: str) -> tuple[EditSamples, float]:
    """What an arm trains on, and the share of it that is good in both dimensions."""
    assert isinstance(flow.finetune, FinetuneConfig) and flow.filter is not None and flow.world is not None
    size = flow.finetune.editor.image_size
    selections = json.loads((run / "filter" / "index.json").read_text())["results"]["selections"]
    if arm in selections:
        return samples_of(str(run / "filter" / "shards" / arm), size), selections[arm]["good_share"]
    if arm == "warm-up":
        examples = captioned(flow.reward.caption_items, seed=flow.seed, world=flow.world)
        triplets = [(example.source, example.edited, example.instruction) for example in examples]
        good = 1.0
    else:
        edits = sorted(drawn(flow), key=by_truth)[: selections["selected"]["count"]]
        triplets = [(edit.source, edit.edited, edit.instruction) for edit in edits]
        good = float(world.good([edit.metadata for edit in edits]).mean())
    source, edited = (np.stack([squared(decode(triplet[place]), size) for triplet in triplets]) for place in (0, 1))
    names = [f"{arm}-{number}" for number in range(len(triplets))]
    return EditSamples(source, edited, [instruction for _, _, instruction in triplets], names), good


def drawn(flow: FlowConfig) -> Iterator[Edit]:
    """All edits of the noisy set."""
    assert flow.filter is not None
    for piece in readers.plan(flow.filter.input, seed=flow.seed, world=flow.world, unit_rows=1000, key="filter.input"):
        yield from (entry for entry in readers.load(piece) if isinstance(entry, Edit))


def by_truth(edit: Edit) -> tuple[int, int, float]:
    """The best ground-truth quality first: the smaller of the two levels, then their sum, then a hash."""
    truth = json.loads(edit.metadata)
    levels = truth["instruction_following"], truth["visual_quality"]
    return -min(levels), -sum(levels), uniform("oracle", edit.row_id)


def row(name: str, arm: str, judged: Mapping[str, np.ndarray], size: Sequence[str], seed: int) -> str:
    """A line of the table."""
    rng = np.random.default_rng(seed)
    scores, full = judged[arm], judged["full"]
    own, less = estimate(rng, scores), "" if arm == "full" else interval(estimate(rng, scores, full), "+.2f")
    each = ", ".join(f"{value:.2f}" for value in scores.mean(axis=1))
    return f"| {name} | {arm} | {size[0]} | {size[1]} | {interval(own, '.2f')} | {less} | {each} |"


def estimate(rng: np.random.Generator, scores: np.ndarray, less: np.ndarray | None = None) -> dict[str, float]:
    """Mean of [training, item] scores, less another arm's on the same items; 95 % over items and, independently, each arm's trainings."""
    means = []
    for _ in range(RESAMPLES):
        items = rng.integers(scores.shape[1], size=scores.shape[1])
        mean = scores[rng.integers(len(scores), size=len(scores))].mean(axis=0)[items].mean()
        if less is not None:
            mean -= less[rng.integers(len(less), size=len(less))].mean(axis=0)[items].mean()
        means.append(mean)
    value = scores.mean() - (0 if less is None else less.mean())
    low, high = np.percentile(means, (2.5, 97.5))
    return {"value": float(value), "low": float(low), "high": float(high)}


def accuracy(run: Path) -> str:
    """Of the reward model, against the ground truth."""
    found = json.loads((run / "evaluate-reward" / "evaluation.json").read_text())["against"]["truth"]["pair_accuracy"]["overall"]
    return f"accuracy {interval(found)}"


if __name__ == "__main__":
    sys.exit(main())
