"""What the filter adds to the model's own time: its scoring phase against a bare loop over the same prepared inputs, on the CPU.

    python benchmarks/filter_overhead.py                                 # about five minutes on two idle cores

The bare loop collates prepared edits and runs the model, on a thread of a Ray worker as the filter's actors do: nothing is read, decoded,
sent or written. The filter reads JPEG files of 512x512
pixels, decodes and resizes them, scores with one actor of one thread, and publishes tables: once with preparation by the actor itself, once
by a task on another core. Both form the same passes. Seconds per edit go from the end of loading the model to the end of the last pass, and
are given as wall time and as CPU time of the process that has the model: on a machine that others use, only the second means something.
An interval is over groups of edits (95 %, Student's t).
"""

from __future__ import annotations

import argparse
import io
import json
import platform
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import ray
import torch
from PIL import Image
from scipy import stats

from reward import EditSample, RewardModel, RewardModelConfig
from reward.config import BackboneConfig, PresentationConfig
from reward.inference import Inference
from stages import edit_scoring, edits
from stages.cluster import Cluster
from stages.config import FlowConfig
from stages.context import Context
from stages.rundir import RunDir
from stages.scoring import load_model, scorer_revision

INSTRUCTION = "replace the red car on the left with a blue bicycle and keep the rest of the street as it is"
BACKBONE = BackboneConfig(
    text_hidden=384,
    text_intermediate=1024,
    text_layers=6,
    text_heads=6,
    text_kv_heads=2,
    vision_hidden=192,
    vision_intermediate=768,
    vision_depth=4,
    vision_heads=4,
    patch_size=14,
    merge_size=2,
)
"""About 0.3 s of one core per edit at 448x448."""


@dataclass(frozen=True)
class Row:
    """Seconds per edit, one entry per group of edits."""

    name: str
    wall: list[float]
    cpu: list[float]
    idle: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=12)
    parser.add_argument("--edits", type=int, default=8, help="edits of a group: a unit of the filter, and a pass")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        save_edits(folder, options.groups * options.edits)
        presentation = PresentationConfig(layout="images", prompt="rubric_first", image_area=448 * 448)
        model = RewardModel.from_config(RewardModelConfig(backbone=BACKBONE, presentation=presentation), [INSTRUCTION], seed=0)
        model.save(folder / "model")
        cluster = Cluster(FlowConfig(name="x").ray.model_copy(update={"dashboard": False, "num_cpus": 4}))
        cluster.connect()
        alone = ray.remote(bare)
        rows = [ray.get(alone.remote(folder, options.edits))]
        rows += [filtered(folder, options.edits, cluster, prepare_workers) for prepare_workers in (0, 1)]
        rows.append(ray.get(alone.remote(folder, options.edits)))
        cluster.close()
    print_table(rows, options)


def save_edits(folder: Path, count: int) -> None:
    """Triplets of smooth noise as JPEG, about as large as photographs."""
    noise = np.random.default_rng(0)
    lines = []
    for number in range(count):
        for role in ("source", "edited"):
            small = noise.integers(0, 256, (64, 64, 3), np.uint8)
            buffer = io.BytesIO()
            Image.fromarray(small).resize((512, 512), Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=92)
            (folder / f"{number}-{role}.jpg").write_bytes(buffer.getvalue())
        lines.append(json.dumps({"source": f"{number}-source.jpg", "instruction": INSTRUCTION, "edited": f"{number}-edited.jpg"}) + "\n")
    (folder / "edits.jsonl").write_text("".join(lines))


def bare(folder: Path, size: int) -> Row:
    """In a Ray worker: inputs prepared beforehand; then nothing but passes."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_passes, folder, size).result()


def _passes(folder: Path, size: int) -> Row:
    inference = Inference(load_model(folder / "model"))
    rows = [json.loads(line) for line in (folder / "edits.jsonl").read_text().splitlines()]
    samples = [EditSample(folder / row["source"], row["instruction"], folder / row["edited"]) for row in rows]
    presented = [item for item in inference.model.presenter.present_each(samples) if not isinstance(item, Exception)]
    groups = [presented[first : first + size] for first in range(0, len(presented), size)]
    list(inference.passes(groups[0]))  # the first pass builds what later ones keep
    wall, cpu = [], []
    for group in groups:
        started, used = time.monotonic(), time.process_time()
        list(inference.passes(group))
        wall.append((time.monotonic() - started) / size)
        cpu.append((time.process_time() - used) / size)
    return Row("bare loop", wall, cpu, 0.0)


def filtered(folder: Path, size: int, cluster: Cluster, prepare_workers: int) -> Row:
    """The filter's scoring phase on one actor. Its first unit, which builds what later ones keep, is left out as in the bare loop."""
    settings = {
        "input": {"dataset": "triplets", "path": str(folder / "edits.jsonl")},
        "model": str(folder / "model"),
        "selections": [{"name": "full", "rule": "all"}],
        "unit_rows": size,
        "workers": 1,
        "prepare_workers": prepare_workers,
    }
    flow = FlowConfig.model_validate({"name": "overhead", "filter": settings})
    assert flow.filter is not None
    run = RunDir(folder / f"run-{prepare_workers}")
    slices = edits.plan(flow.filter.input, seed=0, world=None, unit_rows=size)
    context = Context(run, flow, cluster, False)
    model = folder / "model"
    edit_scoring.score_edits(context, flow.filter, run.step("filter"), model, scorer_revision(model), slices)
    lines = (run.path / "filter" / "units.jsonl").read_text().splitlines()
    figures = [json.loads(line)["figures"] for line in lines][1:]
    idle = sum(entry["idle_seconds"] for entry in figures)
    busy = sum(entry["model_seconds"] for entry in figures)
    return Row(
        "filter, prepared by " + ("a task" if prepare_workers else "the actor"),
        [(entry["model_seconds"] + entry["idle_seconds"]) / entry["edits"] for entry in figures],
        [entry["cpu_seconds"] / entry["edits"] for entry in figures],
        idle / (idle + busy),
    )


def print_table(rows: list[Row], options: argparse.Namespace) -> None:
    what = f"{options.groups} groups of {options.edits} edits"
    print(f"Measured {datetime.now(UTC):%Y-%m-%d} on {platform.machine()}, torch {torch.__version__}: {what}.\n")
    print("| what | wall seconds per edit | CPU seconds per edit, process of the model | CPU over the bare loop | model idle |")
    print("| --- | --- | --- | --- | --- |")
    base = [value for row in rows if row.name == "bare loop" for value in row.cpu]
    for row in rows:
        over = "" if row.name == "bare loop" else f"{np.mean(row.cpu) / np.mean(base) - 1:+.1%} ± {half_width(row.cpu, base):.1%}"
        print(f"| {row.name} | {np.mean(row.wall):.3f} | {np.mean(row.cpu):.3f} | {over} | {row.idle:.1%} |")


def half_width(values: list[float], base: list[float]) -> float:
    """Of the 95 % interval of the ratio of two means."""
    relative = [stats.sem(part) / np.mean(part) for part in (values, base)]
    return float(np.hypot(*relative) * stats.t.ppf(0.975, min(len(values), len(base)) - 1) * np.mean(values) / np.mean(base))


if __name__ == "__main__":
    main()
