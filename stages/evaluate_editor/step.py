"""Evaluate the editor: base and arms edit the same held-out items, and one judge scores all edits in one pass.

``evaluate_editor.items`` and ``evaluate_editor.judge`` name the items and the judge; this step knows no particular one. Copying the source
and, where it is known, the exact edit are rows of the result, as lower and upper bound. Differences are paired by item
(`stages.evaluate_editor.summary`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image

from stages.config import FlowConfig
from stages.context import Context
from stages.engine import contracts, images, steps, storage
from stages.engine.ids import settings_hash
from stages.engine.run_units import run_units
from stages.engine.rundir import Index
from stages.engine.units import Unit, UnitOutput, Work
from stages.evaluate_editor.config import EvaluateEditorConfig
from stages.evaluate_editor.items.item import Item
from stages.evaluate_editor.judges.verdict import HEADLINE, JudgedEdit, Verdict

STEP = steps.EVALUATE_EDITOR
COPY, EXACT = "copy-of-source", "exact-edit"
"""Lower and upper bound that are judged with the trained editors."""
UNIT_ITEMS = 80
SAMPLES = 16
"""Benchmark items whose edits are kept to look at."""
BASE_CAVEAT = "The base editor stands in for a pretrained one and was trained on a noisy set of its own."


@dataclass(frozen=True)
class _Slice:
    arm: str
    first: int
    count: int


def run(context: Context) -> Index:
    """Edit and judge what is not judged yet; returns the step's index."""
    config: EvaluateEditorConfig = context.need("evaluate_editor")
    identity = config.items.identity(context.flow)
    trained = context.run.step(steps.FINETUNE).require()
    arms = trained.results["arms"]
    if config.reference_arm not in arms:
        raise ValueError(f"evaluate_editor.reference_arm: there is no arm {config.reference_arm!r}; trained are {', '.join(arms)}")
    folder = context.run.step(STEP)
    settings = {
        "evaluate_editor": config.model_dump(mode="json", exclude={"workers"}),
        **identity,
        "seed": context.flow.seed,
        "judge_revision": config.judge.revision,
    }
    inputs = {steps.FINETUNE: trained.fingerprint}
    draft, done = folder.begin(settings=settings, inputs=inputs, force=context.force)
    if done:
        return done
    editors = context.run.step(steps.FINETUNE).path / "editors"
    count = config.items.count(context.flow)
    units = []
    for arm in [COPY, *([EXACT] if config.items.has_references else []), *arms]:
        weights = {name: sha for name, sha in trained.files.items() if name.startswith(f"editors/{arm}/")}
        for first in range(0, count, UNIT_ITEMS):
            piece = _Slice(arm, first, min(UNIT_ITEMS, count - first))
            units.append(Unit(settings_hash(STEP, asdict(piece), weights, *identity.values(), config.judge.revision), piece, piece.count))
    result = run_units(
        folder,
        units,
        partial(make_work, editors, context.flow),
        cluster=context.cluster,
        workers=config.workers,
        num_gpus=context.cluster.share_of_a_gpu(config.workers),
        rows_are="edits",
    )
    parts = result.artifacts()
    verdicts, subscores = (folder.read_table(name, parts.get(name, ())) for name in ("verdicts", "subscores"))
    evaluation = evaluate(judged_edits(verdicts, subscores), config, context.flow.seed)
    sha256 = storage.publish_json(folder.path / "evaluation.json", evaluation)
    headline = {arm: entry["overall"] for arm, entry in evaluation["arms"].items()}
    results = {"overall": headline, "differences": evaluation["differences"], "reference_arm": config.reference_arm}
    failed = {arm: entry["failed"] for arm, entry in evaluation["arms"].items() if entry["failed"]}
    results |= {"failed": failed} if failed else {}
    return folder.publish(draft, **result.tables(), files={"evaluation.json": sha256}, results=results)


def make_work(editors: Path, flow: FlowConfig) -> Work:
    """What a worker does with a slice of items: edit, judge, tables."""
    config = flow.evaluate_editor
    assert config is not None
    judge = config.judge
    opened: dict[str, Any] = {}

    def work(piece: _Slice) -> UnitOutput:
        batch = config.items.read(flow, piece.first, piece.count)
        edited = _edit(piece.arm, batch, editors, opened)
        verdicts = judge.judge(batch, edited)
        named = {"arm": piece.arm, "judge": judge.name, "judge_revision": judge.revision}
        rows, subscores = [], []
        for item, verdict in zip(batch, verdicts, strict=True):
            assert verdict.status != "ok" or set(verdict.scores) == set(judge.subscores), f"{judge.name} should give {judge.subscores}"
            of_item = {"item_id": item.item_id, **named}
            rows.append(
                of_item
                | {"language": item.language, "task": item.task, "overall": verdict.overall, "status": verdict.status, "raw": verdict.raw}
                | {name: verdict.scores.get(name) for name in HEADLINE}
            )
            subscores += [of_item | {"subscore": name, "score": score} for name, score in verdict.scores.items() if name not in HEADLINE]
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
        if set(judge.subscores) - set(HEADLINE):
            tables["subscores"] = contracts.table("subscores", subscores)
        return UnitOutput(tables, rows_in=piece.count, rows_out=piece.count)

    return work


def _edit(arm: str, batch: Sequence[Item], editors: Path, opened: dict[str, Any]) -> Sequence[np.ndarray]:
    """Edits of one arm, uint8 of their items' sizes; starting noise depends on the item, not on the batch."""
    if arm == COPY:
        return [item.image for item in batch]
    if arm == EXACT:
        return [item.reference for item in batch if item.reference is not None]
    if arm not in opened:
        import torch

        from finetune.editor import Editor

        torch.set_num_threads(1)
        opened[arm] = Editor.from_directory(editors / arm).to("cuda" if torch.cuda.is_available() else "cpu")
    side = opened[arm].config.image_size
    sources = np.stack([_resized(item.image, side, side) for item in batch])
    edited = opened[arm].edit(sources, [item.instruction for item in batch], sample_ids=[item.item_id for item in batch])
    return [_resized(output, *item.image.shape[:2]) for item, output in zip(batch, edited, strict=True)]


def _resized(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """uint8 [height, width, 3]."""
    if image.shape[:2] == (height, width):
        return image
    return np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.BICUBIC))


def evaluate(edits: Mapping[str, Sequence[JudgedEdit]], config: EvaluateEditorConfig, seed: int) -> dict[str, Any]:
    """Means per arm with bootstrap intervals over items, and paired differences against the reference arm."""
    from stages.evaluate_editor.summary import difference, summarise

    drawn = {"seed": seed, "resamples": config.bootstrap}
    compared = [arm for arm in edits if arm not in (config.reference_arm, COPY, EXACT)]
    return {
        "arms": {arm: summarise(judged, **drawn) for arm, judged in edits.items()},
        "differences": {arm: difference(edits[config.reference_arm], edits[arm], **drawn).to_json(decimals=None) for arm in compared},
        "reference_arm": config.reference_arm,
        "judge": {"name": config.judge.name, "revision": config.judge.revision},
        **drawn,
        "caveats": [*config.items.caveats, *config.judge.caveats, BASE_CAVEAT],
    }


def judged_edits(verdicts: pa.Table, subscores: pa.Table) -> dict[str, list[JudgedEdit]]:
    """Verdicts by arm."""
    further: dict[tuple[str, str], dict[str, float]] = {}
    for row in subscores.to_pylist():
        further.setdefault((row["arm"], row["item_id"]), {})[row["subscore"]] = row["score"]
    found: dict[str, list[JudgedEdit]] = {}
    for row in verdicts.to_pylist():
        scores = {name: row[name] for name in HEADLINE if row[name] is not None} | further.get((row["arm"], row["item_id"]), {})
        verdict = Verdict(row["status"], scores, row["overall"], row["raw"])
        found.setdefault(row["arm"], []).append(JudgedEdit(row["item_id"], row["task"], verdict))
    return found
