"""Evaluate the editor: base and arms edit the same held-out scenes, one judge scores them all in one go.

Scores follow VIEScore and GEdit-Bench (see `finetune.judging`): semantic consistency, perceptual quality and the mean of their geometric
means, 0..10. Copying the source and the exact edit stand in the table as floor and ceiling. Differences are paired by item.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from finetune import judging
from stages.config import EvaluateEditorConfig, WorldConfig
from stages.context import Context
from stages.engine import contracts, images, steps, storage
from stages.engine.ids import content_id, settings_hash
from stages.engine.run_units import run_units
from stages.engine.rundir import Index
from stages.engine.units import Unit, UnitOutput, Work
from stages.world import items, judge
from stages.world.scenes import render

STEP = steps.EVALUATE_EDITOR
COPY, EXACT = "copy-of-source", "exact-edit"
UNIT_ITEMS = 80
SAMPLES = 16
"""Benchmark items whose edits are kept to look at."""


class WorldJudge:
    """The programmatic judge of the embedded world (`stages.world.judge` has the formulas and their weaknesses)."""

    name = "world"
    revision = "1"

    def judge(self, item: judging.BenchmarkItem, edited: np.ndarray) -> judging.Verdict:
        """Compare with the exact edit, which only a synthetic world has."""
        assert item.reference is not None
        scores = judge.judge(item.source, item.reference, edited)
        return judging.Verdict(item.item_id, item.task, "ok", round(scores.semantic_consistency, 4), round(scores.perceptual_quality, 4))


@dataclass(frozen=True)
class _Slice:
    arm: str
    first: int
    count: int


def run(context: Context) -> Index:
    """Edit and judge what is not judged yet; returns the step's index."""
    config: EvaluateEditorConfig = context.need("evaluate_editor")
    world = context.world()
    trained = context.run.step(steps.FINETUNE).require()
    arms = trained.results["arms"]
    if config.reference_arm not in arms:
        raise ValueError(f"evaluate_editor.reference_arm: there is no arm {config.reference_arm!r}; trained are {', '.join(arms)}")
    folder = context.run.step(STEP)
    settings = {
        "evaluate_editor": config.model_dump(mode="json", exclude={"workers"}),
        "world": world.model_dump(mode="json"),
        "seed": context.flow.seed,
        "judge_revision": WorldJudge.revision,
    }
    inputs = {steps.FINETUNE: trained.fingerprint}
    draft, done = folder.begin(settings=settings, inputs=inputs, force=context.force)
    if done:
        return done
    editors = context.run.step(steps.FINETUNE).path / "editors"
    units = []
    for arm in [COPY, EXACT, *arms]:
        weights = {name: sha for name, sha in trained.files.items() if name.startswith(f"editors/{arm}/")}
        for first in range(0, config.items, UNIT_ITEMS):
            piece = _Slice(arm, first, min(UNIT_ITEMS, config.items - first))
            units.append(
                Unit(settings_hash(STEP, asdict(piece), weights, world, context.flow.seed, WorldJudge.revision), piece, piece.count)
            )
    work = partial(_make_work, editors, world, context.flow.seed)
    result = run_units(
        folder,
        units,
        work,
        cluster=context.cluster,
        workers=config.workers,
        num_gpus=context.cluster.share_of_a_gpu(config.workers),
        rows_are="edits",
    )
    evaluation = _evaluate(folder.read_table("verdicts", result.artifacts()["verdicts"]), config, context.flow.seed)
    sha256 = storage.publish_json(folder.path / "evaluation.json", evaluation)
    headline = {arm: entry["overall"] for arm, entry in evaluation["arms"].items()}
    results = {"overall": headline, "differences": evaluation["differences"], "reference_arm": config.reference_arm}
    return folder.publish(draft, **result.tables(), files={"evaluation.json": sha256}, results=results)


def benchmark_item(seed: int, index: int, world: WorldConfig) -> judging.BenchmarkItem:
    """Item ``index`` of the held-out benchmark; its scene occurs in no other split."""
    item = items.item(seed, "benchmark", index, kinds=world.kinds, jitter=world.jitter)
    source, target = render(item.scene, world.size), render(item.target, world.size)
    return judging.BenchmarkItem(content_id("item", source.tobytes(), item.instruction), item.kind, item.instruction, source, target)


def _make_work(editors: Path, world: WorldConfig, seed: int) -> Work:
    opened: dict[str, Any] = {}

    def work(piece: _Slice) -> UnitOutput:
        batch = [benchmark_item(seed, index, world) for index in range(piece.first, piece.first + piece.count)]
        edited = _edit(piece.arm, batch, editors, opened)
        scorer = WorldJudge()
        verdicts = [scorer.judge(item, output) for item, output in zip(batch, edited, strict=True)]
        rows = [
            {
                "item_id": verdict.item_id,
                "arm": piece.arm,
                "language": "en",
                "task": verdict.task,
                "judge": scorer.name,
                "judge_revision": scorer.revision,
                "semantic_consistency": verdict.semantic_consistency,
                "perceptual_quality": verdict.perceptual_quality,
                "overall": verdict.overall,
                "status": verdict.status,
                "raw": verdict.raw,
            }
            for verdict in verdicts
        ]
        shown = [
            {
                "item_id": item.item_id,
                "task": item.task,
                "instruction": item.instruction,
                "arm": piece.arm,
                "image": images.stored(images.png(output)),
            }
            for number, (item, output) in enumerate(zip(batch, edited, strict=True), start=piece.first)
            if number < SAMPLES
        ]
        tables = {"verdicts": contracts.table("verdicts", rows), "samples": contracts.table("samples", shown)}
        return UnitOutput(tables, rows_in=piece.count, rows_out=piece.count)

    return work


def _edit(arm: str, batch: list[judging.BenchmarkItem], editors: Path, opened: dict[str, Any]) -> np.ndarray:
    """Edits of one arm, uint8 [n, S, S, 3]; starting noise depends on the item, not on the batch."""
    if arm == COPY:
        return np.stack([item.source for item in batch])
    if arm == EXACT:
        return np.stack([item.reference for item in batch if item.reference is not None])
    if arm not in opened:
        import torch

        from finetune import Editor

        torch.set_num_threads(1)
        opened[arm] = Editor.from_directory(editors / arm).to("cuda" if torch.cuda.is_available() else "cpu")
    sources = np.stack([item.source for item in batch])
    return opened[arm].edit(sources, [item.instruction for item in batch], sample_ids=[item.item_id for item in batch])


def _evaluate(table: pa.Table, config: EvaluateEditorConfig, seed: int) -> dict[str, Any]:
    """Means per arm with bootstrap intervals over items, and paired differences against the reference arm."""
    verdicts: dict[str, list[judging.Verdict]] = {}
    for row in table.to_pylist():
        verdict = judging.Verdict(
            row["item_id"], row["task"], row["status"], row["semantic_consistency"], row["perceptual_quality"], row["raw"]
        )
        verdicts.setdefault(row["arm"], []).append(verdict)
    arms: dict[str, Any] = {}
    for arm, rows in verdicts.items():
        summary = judging.summarise(rows)
        means = summary.over_items
        own, _ = judging.paired_overall(rows, rows)
        interval = judging.paired_bootstrap(np.zeros(len(own)), own, seed=seed, resamples=config.bootstrap)
        arms[arm] = {
            "semantic_consistency": means and means.semantic_consistency,
            "perceptual_quality": means and means.perceptual_quality,
            "overall": means and means.overall,
            "low": interval.low,
            "high": interval.high,
            "n": summary.judged,
            "failed": summary.items - summary.judged,
            "over_tasks": summary.over_tasks and summary.over_tasks.overall,
            "per_task": {task: value and value.overall for task, value in summary.tasks.items()},
        }
    reference = verdicts[config.reference_arm]
    differences = {}
    for arm, rows in verdicts.items():
        if arm not in (config.reference_arm, COPY, EXACT):
            paired = judging.paired_bootstrap(*judging.paired_overall(reference, rows), seed=seed, resamples=config.bootstrap)
            differences[arm] = {"value": paired.mean, "low": paired.low, "high": paired.high, "n": paired.items}
    return {
        "arms": arms,
        "differences": differences,
        "reference_arm": config.reference_arm,
        "judge": {"name": WorldJudge.name, "revision": WorldJudge.revision},
        "resamples": config.bootstrap,
        "seed": seed,
        "caveats": [
            "Synthetic scenes and a programmatic judge: the direction of a difference and the code path carry over to photographs, "
            "its size does not.",
            "The judge's two scores are not independent: damage to the picture also lowers semantic consistency.",
            "The base editor stands in for a pretrained one and was trained on a noisy set of its own.",
        ],
    }
