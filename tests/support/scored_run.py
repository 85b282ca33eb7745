"""A finished filter step without a model and without Ray: a user's triplets with made-up scores, published through the real contracts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from command import save_triplets
from selecting import completed, rows_of

from pipeline import config
from stages.config import FlowConfig
from stages.datasets import readers as edits
from stages.engine import contracts, storage
from stages.engine.rundir import Index, RunDir
from stages.engine.units import publish_unit
from stages.filter import step as filter
from stages.filter.selection import rule as selection
from stages.filter.selection import stored

TASKS = ("add", "recolour", "remove")


def scored_run(folder: Path, count: int = 30, *, likert: bool = True, selections: tuple[dict[str, Any], ...] = ()) -> RunDir:
    """``count`` edits of ``count / 3`` sources; three tasks, two editors in the metadata, selections ``selected`` and those given."""
    lines = save_triplets(folder, count).read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    for number, row in enumerate(rows):
        row |= {"source": f"{number // 3}-source.png", "task": TASKS[number % 7 % 3], "editor": ("brush", "pen")[number % 2]}
    (folder / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    entries = [{"name": "selected", "rule": "top", "count": 10}, *selections]
    settings = {
        "name": "scored",
        "filter": {"input": {"dataset": "triplets", "path": str(folder / "mine.jsonl")}, "model": "none", "selections": entries},
    }
    flow = FlowConfig.model_validate(settings)
    assert flow.filter is not None
    run = RunDir(folder / "run")
    slices = edits.plan(flow.filter.input, seed=0, world=None, unit_rows=flow.filter.unit_rows)
    delivered = [edit for piece in slices for edit in edits.load(piece) if isinstance(edit, edits.Edit)]
    rng = np.random.default_rng(0)
    scores = [score_row(edit.sample_id, rng.normal(size=2), rng.uniform(0.5, 1.5, 2), task=edit.task, likert=likert) for edit in delivered]
    step = run.step("filter")
    given = contracts.table("edits", [edit.row(with_images=False) for edit in delivered])
    tables = {"scores": completed(contracts.table("scores", scores), given)}
    parts = {name: [part] for name, part in publish_unit(step.path, "unit", tables).items()}
    made: dict[str, Path] = {}
    files: dict[str, str] = {}
    for entry in flow.filter.selections:
        files |= stored.publish(step, entry, selection.select(rows_of(tables), entry, made), parts["scores"], made.get(entry.like or ""))
        made[entry.name] = step.path / stored.table_name(entry.name)
    index = Index(
        step="filter",
        key="k",
        settings={"filter": flow.filter.model_dump(mode="json", exclude={"model", "workers", "num_gpus"}), "seed": 0},
        inputs={"edits": filter._fingerprint(slices), "reward model": "r"},
        artifacts=parts,
        files=files,
        counts={"in": count, "out": count, "quarantined": 0},
    )
    step.publish(index)
    storage.publish_bytes(run.path / "config.yaml", config.dump(flow).encode())
    return run


def score_row(
    sample_id: str, means: np.ndarray, sigmas: np.ndarray, *, task: str = "", language: str = "en", change: float = 1.0, likert: bool = True
) -> dict[str, Any]:
    """A row of the ``scores`` contract from means and sigmas [2] of the two dimensions; Likert scores are 2.5 + mean / 2."""
    entries = [
        {"dimension": name, "mean": mean, "sigma": sigma, "likert": float(np.clip(2.5 + mean / 2, 1, 4).round(5)) if likert else None}
        for name, mean, sigma in zip(contracts.DIMENSIONS, means.round(5).tolist(), sigmas.round(5).tolist(), strict=True)
    ]
    return {
        "sample_id": sample_id,
        "scorer_revision": "r",
        "dimensions": entries,
        "overall_mean": round(float(means.round(5).mean()), 5),
        "overall_sigma": round(float(np.hypot(*sigmas) / 2), 5),
        "change_from_source": change,
        "task": task,
        "language": language,
        "flags": [],
    }
