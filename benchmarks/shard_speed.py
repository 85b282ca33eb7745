"""Speed of writing and verifying shards, against copying the same bytes with the standard library on the same disk.

    python benchmarks/shard_speed.py --folder /data/scratch
    python benchmarks/shard_speed.py --folder /data/scratch --workers 2 --repeats 15

Every repeat writes new files, in a changing order, with all caches as they happen to be: a shard per worker by the shard writer (reads and
checks the input images, hashes every member and the tar, flushes to the disk, renames), and copies of the same bytes by ``shutil``:
one file, one file and a flush to the disk, and the input's image files one by one. Then the shards are verified. Ratios are taken within a
repeat. Prints a Markdown table: medians, and the 10th to 90th percentile over the repeats. Processor seconds, of all threads of the work
itself, depend less on what else the machine does; they say how many workers a core can serve.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from stages.datasets import readers as edits
from stages.datasets.config import TripletEdits
from stages.shards import format as shards
from stages.shards.sample_index import SAMPLE_INDEX
from stages.shards.verify import verify

PNG = b"\x89PNG\r\n\x1a\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default=".", help="where to write; its disk is measured")
    parser.add_argument("--samples", type=int, default=400, help="samples per shard")
    parser.add_argument("--kilobytes", type=int, default=300, help="size of each of a sample's two images")
    parser.add_argument("--workers", type=int, default=1, help="processes, each with a shard of its own")
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="shard-speed-") as folder:
        plan = _input(Path(folder), options.samples, options.kilobytes)
        with ProcessPoolExecutor(options.workers) as pool:
            seconds, processor = _measure(Path(folder), plan, pool, options.workers, options.repeats)
    size = options.workers * options.samples * 2 * options.kilobytes * 1000
    print(_table(seconds, processor, size, options.workers, options.samples, options.kilobytes, options.repeats))
    return 0


def _input(folder: Path, samples: int, kilobytes: int) -> edits.Slice:
    """Triplets whose images are random bytes with a PNG's beginning, and the plan to read them."""
    rng = np.random.default_rng(0)
    rows = []
    for number in range(samples):
        for role in ("source", "edited"):
            (folder / f"{number}.{role}.png").write_bytes(PNG + rng.bytes(kilobytes * 1000 - len(PNG)))
        rows.append({"source": f"{number}.source.png", "instruction": f"edit {number}", "edited": f"{number}.edited.png"})
    (folder / "edits.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = TripletEdits(dataset="triplets", path=str(folder / "edits.jsonl"))
    return edits.plan(config, seed=0, world=None, unit_rows=samples)[0]


def _measure(
    folder: Path, plan: edits.Slice, pool: ProcessPoolExecutor, workers: int, repeats: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds of the wall and of the processor per kind of work and repeat; one more repeat at the beginning is not counted."""
    tar = folder / "reference.tar"
    _write(folder / "first", plan, "reference.tar")
    (folder / "first" / "reference.tar").rename(tar)
    images = sorted(path for path in folder.glob("*.png"))
    kinds: dict[str, Callable[[Path], float]] = {
        "write": lambda target: _each(pool, workers, _write, target, plan),
        "copy": lambda target: _each(pool, workers, _copy, target, [tar], False),
        "copy and flush": lambda target: _each(pool, workers, _copy, target, [tar], True),
        "copy image files": lambda target: _each(pool, workers, _copy, target, images, False),
    }
    seconds: dict[str, list[float]] = {kind: [] for kind in [*kinds, "verify"]}
    processor: dict[str, list[float]] = {kind: [] for kind in seconds}
    for repeat in range(repeats + 1):
        names = list(kinds)[repeat % len(kinds) :] + list(kinds)[: repeat % len(kinds)]
        taken = {}
        for kind in names:
            target = folder / kind
            target.mkdir()
            taken[kind] = _timed(lambda kind=kind, target=target: kinds[kind](target))
            if kind == "write":
                _index(target, workers)
                taken["verify"] = _timed(lambda target=target: _verify(target))
            shutil.rmtree(target)
        for kind, (wall, used) in taken.items() if repeat else ():
            seconds[kind].append(wall)
            processor[kind].append(used)
    return seconds, processor


def _each(pool: ProcessPoolExecutor, workers: int, work: Callable[..., None], target: Path, *arguments: object) -> float:
    """Do the work once per worker; returns the processor seconds of all of them."""
    names = [f"{number}.tar" for number in range(workers)]
    return sum(pool.map(_used, [work] * workers, *zip(*[(target, *arguments, name) for name in names], strict=True)))


def _used(work: Callable[..., None], *arguments: object) -> float:
    started = time.process_time()
    work(*arguments)
    return time.process_time() - started


def _write(target: Path, plan: edits.Slice, name: str) -> None:
    shard, sample_index = shards.write_shard(str(target), name, _samples(plan))
    (target / f"{name}.json").write_text(json.dumps([vars(shard), sample_index.to_pylist()]))


def _samples(plan: edits.Slice) -> Iterator[shards.Sample]:
    for number, edit in enumerate(edits.fetch(plan)):
        assert isinstance(edit, edits.Edit)
        scores = {name: {"mean": 0.5, "sigma": 0.1} for name in ("overall", "instruction_following", "visual_quality")}
        facts = {"instruction": edit.instruction, "scores": scores, "selection": {"rank": number}, "position": edit.position}
        yield shards.Sample(edit.sample_id, edit.source, edit.source_sha256, edit.edited, edit.edited_sha256, facts)


def _copy(target: Path, files: list[Path], flush: bool, name: str) -> None:
    (target / name).mkdir()
    for path in files:
        shutil.copyfile(path, target / name / path.name)
        if flush:
            with open(target / name / path.name, "rb+") as file:
                os.fsync(file.fileno())


def _index(target: Path, workers: int) -> None:
    """Make the written tars a folder of shards."""
    records = [json.loads((target / f"{number}.tar.json").read_text()) for number in range(workers)]
    sample_index = SAMPLE_INDEX.empty_table().from_pylist([row for _, rows in records for row in rows], schema=SAMPLE_INDEX)
    shards.publish(str(target), [shards.Shard(**shard) for shard, _ in records], sample_index.to_reader(), {})


def _verify(target: Path) -> float:
    started = time.process_time()
    problems = verify(str(target))
    assert not problems, problems
    return time.process_time() - started


def _timed(work: Callable[[], float]) -> tuple[float, float]:
    """Seconds of the wall, and those of the processor that the work returns."""
    started = time.perf_counter()
    used = work()
    return time.perf_counter() - started, used


def _table(
    seconds: dict[str, list[float]], processor: dict[str, list[float]], size: int, workers: int, samples: int, kilobytes: int, repeats: int
) -> str:
    write = np.array(seconds["write"])
    lines = [
        f"Measured {datetime.now(UTC):%Y-%m-%d} on {platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end: "
        f"{workers} worker{'s' if workers > 1 else ''}, {samples} samples of 2 x {kilobytes} KB each, {repeats} repeats.",
        "",
        "| work | MB/s | speed of writing as a share of it | of the fastest repeats | processor seconds per GB |",
        "| --- | --- | --- | --- | --- |",
    ]
    for kind, values in seconds.items():
        speed = _spread(size / 1e6 / np.array(values), ".0f")
        ratio, best = _spread(np.array(values) / write, ".2f"), f"{min(values) / write.min():.2f}"
        used = _spread(np.array(processor[kind]) / size * 1e9, ".2f")
        lines.append(f"| {kind} | {speed} | {'' if kind == 'write' else ratio} | {'' if kind == 'write' else best} | {used} |")
    return "\n".join(lines)


def _spread(values: np.ndarray, form: str) -> str:
    low, middle, high = np.quantile(values, (0.1, 0.5, 0.9))
    return f"{middle:{form}} [{low:{form}}, {high:{form}}]"


if __name__ == "__main__":
    sys.exit(main())
