"""How well a training rank is fed with images at the paper's size, and what it holds in memory beside the model.

    python benchmarks/image_feed.py --folder /tmp/feed
    python benchmarks/image_feed.py --folder /tmp/feed --groups 1000 --pairs 2 --workers 1 2 4

The folder gets a run directory once, of 9,557 groups with 8 images of 1 MP each (13 GB): 64 different pictures that repeat, in files as
generate writes them. Then one rank trains on it with a model that sleeps. `--pairs` is the rank's share of a step: 16 pairs on 8 ranks
are 2, so 6 images. Waiting is all time between two passes of the model: the loader, the collating, the loss and the optimizer. Memory is
that of the rank and its loader workers together (PSS), highest and after the groups were loaded, above what the process had with the
model alone. On a machine that others use, look at the CPU of the rank per step: it is what waiting cannot be below. Linux only.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from stages.annotate.ratings.groups import CompleteGroup
from stages.engine import contracts, steps
from stages.engine.ids import content_id, uniform
from stages.engine.rundir import Index, Part, RunDir
from stages.engine.units import publish_unit
from stages.preferences.groups import load_groups
from stages.preferences.step import rows as pair_rows

CANDIDATES = 7
UNIT_SOURCES = 150
PICTURES = 64
HELD_OUT = 0.05
VALIDATED = 4
"""Held-out groups that are scored at the end; all are loaded."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where the run directory is made, once per number of groups")
    parser.add_argument("--groups", type=int, default=9557)
    parser.add_argument("--pairs", type=int, default=2, help="pairs of this rank per step")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=0.6, help="that the model sleeps per step")
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2, 4])
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    run = RunDir(made_run(options.folder, options.groups))
    if options.measure is not None:
        print(json.dumps(measured(run, options.measure, options)))
        return
    seconds = cpu_per_image(run)
    images = 3 * options.pairs
    print(f"{options.groups:,} groups of {CANDIDATES + 1} images, {os.cpu_count()} cores")
    print(f"{seconds * 1000:.1f} ms of CPU to read, decode and resize an image")
    print(f"{images} images per step of {options.seconds} s: {math.ceil(images * seconds / options.seconds)} loader workers needed")
    print(f"48 images, all 16 pairs of a step on one rank: {math.ceil(48 * seconds / options.seconds)} loader workers needed\n")
    print(f"load average {os.getloadavg()[0]:.1f} before\n")
    print("| loader workers | waits | for images | CPU of the rank per step | memory with the groups loaded | highest memory |")
    print("| --- | --- | --- | --- | --- | --- |")
    for workers in options.workers:
        command = [sys.executable, *sys.argv, "--measure", str(workers)]
        found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1])
        memory = f"{found['held'] / 1e6:,.0f} MB | {found['peak'] / 1e6:,.0f} MB"
        print(f"| {workers} | {found['waits']:.1%} | {found['for_images']:.1%} | {1000 * found['cpu']:.0f} ms | {memory} |", flush=True)


def made_run(folder: Path, groups: int) -> Path:
    """A run directory with published sources, candidates and pairs; made once."""
    path = folder / f"run-{groups}"
    run = RunDir(path)
    if run.step(steps.PREFERENCES).index() is not None:
        return path
    pictures = [picture(number) for number in range(PICTURES)]
    print(f"writing {groups * (CANDIDATES + 1) * sum(map(len, pictures)) / PICTURES / 1e9:.1f} GB to {path}", flush=True)
    generate = run.step(steps.GENERATE)
    parts: dict[str, list[Part]] = {"sources": [], "candidates": []}
    pairs: list[dict[str, Any]] = []
    for first in range(0, groups, UNIT_SOURCES):
        unit = range(first, min(groups, first + UNIT_SOURCES))
        sources = [source(group, pictures) for group in unit]
        candidates = [candidate(group, place, pictures) for group in unit for place in range(CANDIDATES)]
        tables = {"sources": contracts.table("sources", sources), "candidates": contracts.table("candidates", candidates)}
        for name, part in publish_unit(generate.path, f"unit-{first:06}", tables).items():
            parts[name].append(part)
        for row in sources:
            pairs += pair_rows(rated(row["source_id"]), contracts.DIMENSIONS, "opposed", split=row["split"])
    generate.publish(Index(steps.GENERATE, "made", {}, {}, artifacts=parts))
    made = publish_unit(run.step(steps.PREFERENCES).path, "pairs", {"pairs": contracts.table("pairs", pairs)})
    run.step(steps.PREFERENCES).publish(Index(steps.PREFERENCES, "made", {}, {}, artifacts={"pairs": [made["pairs"]]}))
    return path


def picture(number: int) -> bytes:
    """A JPEG of 1 MP and about 170 KB."""
    noise = np.random.default_rng(number)
    coarse, fine = (Image.fromarray(noise.integers(0, 256, (size, size, 3), dtype=np.uint8)).resize((1024, 1024)) for size in (16, 256))
    buffer = io.BytesIO()
    Image.blend(coarse, fine, 0.25).save(buffer, "JPEG", quality=78)
    return buffer.getvalue()


def source(group: int, pictures: list[bytes]) -> dict[str, Any]:
    """Row of the contract sources."""
    row = dict.fromkeys(contracts.SOURCES.names, "") | {
        "source_id": content_id("source", group),
        "split": "validation" if uniform("split", group) < HELD_OUT else "train",
        "image": {"bytes": pictures[group % PICTURES], "path": None},
        "instruction": f"make object {group} larger and keep the rest of the picture as it is",
    }
    return row | {"group": content_id("group", group), "task": "resize"}


def candidate(group: int, place: int, pictures: list[bytes]) -> dict[str, Any]:
    """Row of the contract candidates."""
    source_id = content_id("source", group)
    return contracts.candidate(
        candidate_id=content_id("candidate", source_id, place),
        source_id=source_id,
        editor=f"editor-{place}",
        image={"bytes": pictures[(CANDIDATES * group + place) % PICTURES], "path": None},
    )


def rated(source_id: str) -> CompleteGroup:
    """Scores of 1 to 4 that depend on the candidate."""
    ids = sorted(content_id("candidate", source_id, place) for place in range(CANDIDATES))
    scores = np.array([[1 + int(4 * uniform(name, dimension)) for dimension in contracts.DIMENSIONS] for name in ids], float)
    return CompleteGroup(source_id, tuple(ids), scores, 1)


def cpu_per_image(run: RunDir) -> float:
    """CPU seconds to read, decode and resize an image in this process, on 8 groups far apart."""
    model, groups = sleeping(0.0), load_groups(run, "train")
    chosen = groups[:: max(1, len(groups) // 8)][:8]
    before = time.process_time()
    for group in chosen:
        model.prepare(source=group.source, candidates=group.candidates, instruction=group.instruction)
    return (time.process_time() - before) / sum(1 + len(group.candidates) for group in chosen)


def sleeping(seconds: float) -> Any:
    """A tiny model with the paper's presentation whose training pass sleeps; ``passes``: begin, end and CPU of the thread then."""
    import torch

    from reward import RewardModel, RewardModelConfig
    from reward.config import BackboneConfig, PresentationConfig
    from reward.model.aggregation import aggregate
    from reward.model.model import RewardOutput

    torch.set_num_threads(1)
    presentation = PresentationConfig(layout="images", prompt="reference", image_area=448 * 448)
    config = RewardModelConfig(backbone=BackboneConfig(patch_size=14), presentation=presentation)
    model = RewardModel.from_config(config, ["make object larger and keep the rest of the picture as it is"])
    model.passes = []

    def forward(batch: Any, root: Any = None) -> RewardOutput:
        begin = time.monotonic()
        mean = model.reward_embedding.sum() + torch.zeros(batch.reads.shape)  # [edit, dimension]
        if model.training:
            time.sleep(seconds)
            model.passes.append((begin, time.monotonic(), time.thread_time()))
        return RewardOutput(mean, torch.ones_like(mean), *aggregate(mean, torch.ones_like(mean), config.aggregation))

    model.forward = forward
    return model


def measured(run: RunDir, workers: int, options: argparse.Namespace) -> dict[str, float]:
    """Train for some steps; bytes and the share of time in which the model waits, from the end of its first pass on."""
    from reward import train
    from reward.training.config import LossConfig, TrainingConfig

    model = sleeping(options.seconds)
    before, highest, ended = memory(), [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.2):
            highest[0] = max(highest[0], memory())

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    training, validation = load_groups(run, "train"), load_groups(run, "validation")
    held = memory() - before
    config = TrainingConfig(
        steps=options.steps, groups_per_batch=None, pairs_per_batch=options.pairs, loader_workers=workers, validate_every=options.steps
    )
    waits = timed_loader()
    with tempfile.TemporaryDirectory() as checkpoints:
        arguments = {"checkpoint_dir": Path(checkpoints), "on_metrics": lambda _: None}
        train(model=model, config=config, loss=LossConfig(), groups=training, validation=validation[:VALIDATED], **arguments)
    ended.set()
    watching.join()
    (_, begin, cpu_begin), *_, (_, end, cpu_end) = passes = model.passes
    return {
        "waits": 1 - sum(end - begin for begin, end, _ in passes[1:]) / (end - begin),
        "for_images": sum(seconds for moment, seconds in waits if begin < moment < end) / (end - begin),
        "cpu": (cpu_end - cpu_begin) / (options.steps - 1),
        "held": held,
        "peak": highest[0] - before,
    }


def timed_loader() -> list[tuple[float, float]]:
    """When a batch was asked for, and the seconds until it came; grows while a training runs."""
    from reward.inputs.loading import GroupLoader

    plain, waits = GroupLoader.batches, []

    def batches(self: GroupLoader, wanted: Any) -> Any:
        found = plain(self, wanted)
        while True:
            begin = time.monotonic()
            batch = next(found, None)
            if batch is None:
                return
            waits.append((begin, time.monotonic() - begin))
            yield batch

    GroupLoader.batches = batches
    return waits


def memory() -> int:
    """Bytes of this process and its children, shared pages counted once (PSS)."""
    pids = [os.getpid(), *map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())]
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total


if __name__ == "__main__":
    main()
