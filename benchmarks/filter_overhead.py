"""What the filter adds to the model's own time: its scoring phase against a bare loop over the same prepared inputs, on the CPU.

    python benchmarks/filter_overhead.py                                 # about nine minutes on two idle cores
    python benchmarks/filter_overhead.py --sleep 0.2 --groups 6          # a model that sleeps per edit, as one on a GPU leaves the cores

The bare loop collates prepared edits and runs the model, on a thread of a Ray worker as the filter's actors do: nothing is read, decoded,
sent or written. The filter reads JPEG files of 512x512 pixels, decodes and resizes them, scores with one actor of one thread, and publishes
tables: once with preparation by the actor itself, once by a task on another core, as with GPUs. All form the same passes. Seconds per edit
go from the end of loading the model to the end of the last pass. They are given as wall time, and as CPU time of the process that has the
model, which means more on a machine that others use. The three take turns, since a machine's speed drifts; an interval is over the
ratios within a turn (95 %, Student's t).
"""

from __future__ import annotations

import argparse
import io
import json
import platform
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import ray
import torch
from PIL import Image
from scipy import stats

from reward import EditSample, RewardModel, RewardModelConfig
from reward.config import BackboneConfig, PresentationConfig
from reward.inference.passes import Inference
from stages.config import FlowConfig
from stages.context import Context
from stages.datasets import readers as edits
from stages.engine.cluster import Cluster
from stages.engine.rundir import RunDir
from stages.engine.units import Work
from stages.filter import scoring as edit_scoring
from stages.scoring.rows import load_model, scorer_revision

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


TINY = BackboneConfig(patch_size=14, merge_size=2)
"""For a model that sleeps."""
BARE, ACTOR, TASK = "bare loop", "filter, prepared by the actor", "filter, prepared by a task"


class Seconds(NamedTuple):
    """Per edit; ``idle``: share of the wall time in which the model waited."""

    wall: float
    cpu: float
    idle: float = 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--groups", type=int, default=1, help="groups of edits per turn; one more is not counted")
    parser.add_argument("--edits", type=int, default=48, help="edits of a group: a unit of the filter")
    parser.add_argument("--sleep", type=float, default=0.0, help="seconds per edit that a tiny model sleeps instead of computing")
    options = parser.parse_args()
    torch.set_num_threads(1)
    measured: dict[str, list[Seconds]] = {BARE: [], ACTOR: [], TASK: []}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        save_edits(folder, (1 + options.groups) * options.edits)
        presentation = PresentationConfig(layout="images", prompt="rubric_first", image_area=448 * 448)
        backbone = TINY if options.sleep else BACKBONE
        model = RewardModel.from_config(RewardModelConfig(backbone=backbone, presentation=presentation), [INSTRUCTION], seed=0)
        model.save(folder / "model")
        cluster = Cluster(FlowConfig(name="x").ray.model_copy(update={"dashboard": False, "num_cpus": 4}))
        cluster.connect()
        setattr(edit_scoring, "make_scoring", partial(make_scoring, options.sleep))  # noqa: B010
        for turn in range(options.turns):
            run = folder / f"run-{turn}"
            kinds = {
                BARE: lambda: ray.get(ray.remote(bare).remote(folder, options.edits, options.sleep)),
                ACTOR: lambda run=run: filtered(folder, run / "actor", options.edits, cluster, 0),
                TASK: lambda run=run: filtered(folder, run / "task", options.edits, cluster, 1),
            }
            for kind in [*kinds][turn % 3 :] + [*kinds][: turn % 3]:
                measured[kind].append(kinds[kind]())
        cluster.close()
    print_table(measured, options)


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


def make_scoring(sleep: float, *arguments: Any) -> Work:
    """Replaces ``stages.filter.scoring.make_scoring``: every forward pass of its process sleeps first."""
    torch.nn.modules.module.register_module_forward_pre_hook(partial(_sleep, sleep))
    return edit_scoring.make_scoring(*arguments)


def _sleep(seconds: float, module: torch.nn.Module, arguments: tuple[Any, ...]) -> None:
    if isinstance(module, RewardModel):
        time.sleep(seconds * len(arguments[0].reads))


def bare(folder: Path, size: int, sleep: float) -> Seconds:
    """In a Ray worker: inputs prepared beforehand; then nothing but passes."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_passes, folder, size, sleep).result()


def _passes(folder: Path, size: int, sleep: float) -> Seconds:
    inference = Inference(load_model(folder / "model"))
    inference.model.register_forward_pre_hook(partial(_sleep, sleep))
    rows = [json.loads(line) for line in (folder / "edits.jsonl").read_text().splitlines()]
    samples = [EditSample(folder / row["source"], row["instruction"], folder / row["edited"]) for row in rows]
    prepared = [item for item in inference.model.processor.prepare_each(samples) if not isinstance(item, Exception)]
    list(inference.passes(prepared[:size]))  # the first pass builds what later ones keep
    started, used = time.monotonic(), time.process_time()
    for first in range(size, len(prepared), size):
        list(inference.passes(prepared[first : first + size]))
    edits_done = len(prepared) - size
    return Seconds((time.monotonic() - started) / edits_done, (time.process_time() - used) / edits_done)


def filtered(folder: Path, run: Path, size: int, cluster: Cluster, prepare_workers: int) -> Seconds:
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
    slices = edits.plan(flow.filter.input, seed=0, world=None, unit_rows=size)
    directory, model = RunDir(run), folder / "model"
    context = Context(directory, flow, cluster, False)
    scoring = edit_scoring.Scoring(context, flow.filter, directory.step("filter"), model, scorer_revision(model), slices)
    scoring.rest(np.arange(sum(len(piece.rows) for piece in slices)))
    figures = [json.loads(line)["figures"] for line in (run / "filter" / "units.jsonl").read_text().splitlines()][1:]
    done, idle, busy, cpu = (sum(entry[name] for entry in figures) for name in ("edits", "idle_seconds", "model_seconds", "cpu_seconds"))
    return Seconds((busy + idle) / done, cpu / done, idle / (idle + busy))


def print_table(measured: dict[str, list[Seconds]], options: argparse.Namespace) -> None:
    what = f"{options.turns} turns of {options.groups} groups of {options.edits} edits" + (
        f", a model that sleeps {options.sleep:g} s per edit" if options.sleep else ""
    )
    print(f"Measured {datetime.now(UTC):%Y-%m-%d} on {platform.machine()}, torch {torch.__version__}: {what}.\n")
    print("| what | wall seconds per edit | over the bare loop | CPU seconds per edit | over the bare loop | model idle |")
    print("| --- | --- | --- | --- | --- | --- |")
    base = np.array(measured[BARE])[:, :2]  # [turn, wall and CPU]
    for kind, found in measured.items():
        values = np.array(found)
        over = ["", ""] if kind == BARE else [interval(ratios) for ratios in (values[:, :2] / base - 1).T]
        wall, cpu, idle = values.mean(axis=0)
        print(f"| {kind} | {wall:.3f} | {over[0]} | {cpu:.3f} | {over[1]} | {idle:.1%} |")


def interval(ratios: np.ndarray) -> str:
    """Mean of the turns and half the width of its 95 % interval."""
    return f"{ratios.mean():+.1%} ± {stats.sem(ratios) * stats.t.ppf(0.975, len(ratios) - 1):.1%}"


if __name__ == "__main__":
    main()
