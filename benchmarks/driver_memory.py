"""What the driver of the filter holds per edit, phase by phase, in a run whose edits are all inspected and scored.

    python benchmarks/driver_memory.py --rows 1000000

A list of triplets is written, and units with synthetic rows as workers would have published them (one edit in twenty is too small for a
gate). Then the filter step runs as it is, without Ray, up to the moment at which the shards are planned. Peak is the highest resident
memory of the process within a phase, and held is what is left of it behind the phase, both above what was resident before and per edit.
What a phase frees may stay with the process, so held is an upper bound. Time is that of the
processor, all threads together. Prints a Markdown table. Linux only.
"""

from __future__ import annotations

import argparse
import gc
import json
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from reward.inputs.decoding import DECODER
from stages.config import FlowConfig
from stages.context import Context
from stages.datasets import readers as edits
from stages.engine import contracts, units
from stages.engine.cluster import Cluster
from stages.engine.config import RayConfig
from stages.engine.ids import settings_hash
from stages.engine.rundir import RunDir, StepFolder
from stages.filter import decontamination, examples, inspection, shard_sets, summary
from stages.filter import scored as scored_of
from stages.filter import scoring as edit_scoring
from stages.filter import step as filter
from stages.filter.schemas import INSPECTED
from stages.filter.selection import stored
from stages.scoring.rows import scorer_revision

UNIT_ROWS = 500
INSTRUCTION = "replace the red car on the left with a blue bicycle and keep the street as it is, number"
PHASES = {
    "plan of the edits": (edits, "plan"),
    "slices inspected, and scored beside it: all done": (filter, "_inspected"),
    "inspected: read, copies found, gates": (inspection, "decide"),
    "decontamination, without references": (decontamination, "check"),
    "scoring, all done": (edit_scoring.Scoring, "rest"),
    "tables read, also within the phases above": (StepFolder, "read_table"),
    "scores put together, with flags": (scored_of, "assemble"),
    "selections, with their files": (stored, "publish"),
    "figures of the scores": (summary, "of"),
    "shards planned": (shard_sets, "assign"),
}
"""In the order of the step; a phase that is called several times is one line."""


class Enough(Exception):
    """The shards are planned."""


class Nobody(Cluster):
    """A cluster that nothing is asked of."""

    def connect(self) -> None:
        """Start nothing."""

    def _total(self, resource: str) -> int:
        return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows: int = parser.parse_args().rows
    with tempfile.TemporaryDirectory(prefix="driver-memory-") as folder:
        context = prepare(Path(folder), rows)
        gc.collect()
        gc.freeze()  # else each of some thousand calls looks through all that was imported
        pa.default_memory_pool().release_unused()
        figures = {name: Figures() for name in PHASES}
        for name, (module, function) in PHASES.items():
            setattr(module, function, figures[name].watching(getattr(module, function)))
        setattr(examples, "publish", lambda *_: [])  # noqa: B010  # there are no images
        setattr(shard_sets, "write", enough)  # noqa: B010
        before = resident()
        with suppress(Enough):
            filter.run(context)
    highest = max(found.highest for found in figures.values())
    print(f"{rows:,} edits; resident memory before {before / 1e6:.0f} MB, highest {highest / 1e6:.0f} MB\n")
    print("| phase | peak, bytes per edit | held, bytes per edit | highest, MB | µs of a core per edit |\n| --- | --- | --- | --- | --- |")
    for name, found in figures.items():
        per_edit = f"{found.peak / rows:,.0f} | {found.held / rows:,.0f}"
        print(f"| {name} | {per_edit} | {found.highest / 1e6:,.0f} | {1e6 * found.seconds / rows:.1f} |")


class Figures:
    """Bytes of resident memory above what was there before, and seconds of a core and by the clock, over all calls of a function."""

    measuring = 0.0
    """Seconds of a core that looking at the memory took, in all functions: no part of what they took."""

    def __init__(self) -> None:
        self.peak = self.held = self.highest = 0
        self.seconds = self.wall = 0.0

    def watching(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, measured."""

        def watched(*arguments: Any, **named: Any) -> Any:
            before = resident()
            Path("/proc/self/clear_refs").write_text("5")  # the highest resident size counts from now
            begun, clock = time.process_time() - Figures.measuring, time.monotonic()
            made = function(*arguments, **named)
            ended = time.process_time()
            self.seconds += ended - Figures.measuring - begun
            self.wall += time.monotonic() - clock
            highest = resident("VmHWM")
            gc.collect()
            pa.default_memory_pool().release_unused()
            self.peak = max(self.peak, self.held + highest - before)
            self.held += resident() - before
            self.highest = max(self.highest, highest)
            Figures.measuring += time.process_time() - ended
            return made

        return watched


def resident(what: str = "VmRSS") -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(what))) * 1024


def enough(*_: Any, **__: Any) -> None:
    raise Enough


def prepare(folder: Path, rows: int) -> Context:
    """A run of which all edits are inspected and scored."""
    model = folder / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    with open(folder / "edits.jsonl", "w") as file:
        for number in range(rows):
            row = {"source": f"image/{number}_0.png", "instruction": f"{INSTRUCTION} {number}", "edited": f"image/{number}_1.png"}
            file.write(json.dumps(row) + "\n")
    settings = {
        "input": {"dataset": "triplets", "path": str(folder / "edits.jsonl")},
        "model": str(model),
        "gates": {"size": {"action": "drop", "shortest_side": 100}},
        "selections": [{"name": "selected", "rule": "top", "fraction": 0.43}],
        "unit_rows": UNIT_ROWS,
        "workers": 1,
    }
    context = Context(RunDir(folder / "run"), FlowConfig.model_validate({"name": "memory", "filter": settings}), Nobody(RayConfig()))
    config = context.need("filter")
    step = context.run.step(filter.STEP)
    slices = edits.plan(config.input, seed=0, world=None, unit_rows=UNIT_ROWS)
    draw = np.random.default_rng(0)
    ids = np.array([f"{number:024x}" for number in draw.permutation(rows)])
    small = np.arange(rows) % 20 == 0
    kept = [inspection.rows_of(piece, np.flatnonzero(~small)) for piece in slices]
    step.path.mkdir(parents=True)
    revision = scorer_revision(model)
    with open(step.path / "units.jsonl", "w") as log:
        for piece in slices:
            numbers = np.array([number for number, _ in piece.rows])
            publish(step, log, inspection.unit_key(piece), {"inspected": inspected(numbers, ids, draw)})
        for whole, piece in zip(slices, kept, strict=True):
            numbers = np.array([number for number, _ in piece.rows])
            family = settings_hash(step.name, DECODER, whole.fingerprint, revision, config.token_budget)
            key = settings_hash(family, numbers.tolist())
            publish(step, log, key, {"edits": delivered(numbers, ids), "scores": scored(numbers, ids, draw, revision)}, family)
    return context


def publish(step: StepFolder, log: Any, key: str, tables: dict[str, pa.Table], family: str = "") -> None:
    parts = units.publish_unit(step.path, key, tables | {"quarantine": contracts.table("quarantine", [])})
    count = next(iter(tables.values())).num_rows
    log.write(json.dumps(asdict(units.UnitRecord(key, parts, count, count, family=family))) + "\n")


def inspected(numbers: np.ndarray, ids: np.ndarray, draw: np.random.Generator) -> pa.Table:
    count = len(numbers)
    side = np.where(numbers % 20 == 0, 64, 1024)
    columns: dict[str, Any] = {
        field.name: draw.integers(0, 100, count) if pa.types.is_integer(field.type) else draw.random(count) for field in INSPECTED
    }
    columns |= {name: side for name in INSPECTED.names if name.endswith(("_width", "_height"))}
    columns |= {name: draw.integers(0, 2**63, count) for name in INSPECTED.names if name.endswith("_phash")}
    columns |= {name: [draw.bytes(32).hex() for _ in numbers] for name in ("source_sha256", "edited_sha256")}
    columns |= {"sample_id": ids[numbers], "row_id": [str(number) for number in numbers], "position": positions(numbers)}
    columns |= {"instruction": [f"{INSTRUCTION} {number}" for number in numbers], "asked_words": np.full(count, 9)}
    columns |= {"text_faults": np.zeros(count), "characters": np.full(count, 100)}
    return pa.table(columns).cast(INSPECTED)


def delivered(numbers: np.ndarray, ids: np.ndarray) -> pa.Table:
    images = [{"bytes": None, "path": f"image/{number}_0.png"} for number in numbers]
    texts = {"dataset": "triplets", "language": "en", "task": "", "licence": "", "metadata": "{}"}
    columns: dict[str, Any] = {name: [text] * len(numbers) for name, text in texts.items()}
    columns |= {"sample_id": ids[numbers], "position": positions(numbers), "image_bytes": np.full(len(numbers), 600_000)}
    columns |= {"source": images, "edited": images, "instruction": [f"{INSTRUCTION} {number}" for number in numbers]}
    return pa.table({name: pa.array(columns[name], contracts.EDITS.field(name).type) for name in contracts.EDITS.names})


def scored(numbers: np.ndarray, ids: np.ndarray, draw: np.random.Generator, revision: str) -> pa.Table:
    count = len(numbers)
    means = draw.random((count, 2)).round(5)
    dimensions = [
        [{"dimension": name, "mean": mean, "sigma": 0.5, "likert": None} for name, mean in zip(contracts.DIMENSIONS, row, strict=True)]
        for row in means
    ]
    columns: dict[str, Any] = {"task": [""] * count, "language": ["en"] * count, "flags": [[]] * count, "dimensions": dimensions}
    columns |= {
        "sample_id": ids[numbers],
        "scorer_revision": [revision] * count,
        "overall_mean": means.mean(1),
        "overall_sigma": means[:, 0],
    }
    columns["change_from_source"] = means[:, 1]
    return pa.table({name: pa.array(columns[name], contracts.SCORES.field(name).type) for name in contracts.SCORES.names})


def positions(numbers: np.ndarray) -> list[str]:
    return [edits.position("edits.jsonl", number) for number in numbers]


if __name__ == "__main__":
    main()
