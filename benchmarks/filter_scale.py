"""How far one driver carries the filter: throughput against actors, and the time and memory of what only the driver does.

    python benchmarks/filter_scale.py
    python benchmarks/filter_scale.py --part selection --rows 10000000

Synthetic rows go through the functions that the filter step calls. Every part runs in a process of its own, so that its peak memory can
be read (that process alone, without Ray's own). In `actors` a unit's work sleeps, as a driver sees a GPU's work, or does nothing, which
shows how many units a driver assigns per second; those seconds are of the wall. All others are processor seconds of the one process, so
that they can be compared on a machine that is busy. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.datasets import readers as edits
from stages.datasets.config import TripletEdits, WorldConfig, WorldEdits
from stages.engine import contracts, storage, tables, unit_log, units
from stages.engine.cluster import Cluster
from stages.engine.config import RayConfig
from stages.engine.ids import ID_DIGITS, settings_hash
from stages.engine.run_units import run_units
from stages.engine.rundir import Part, StepFolder
from stages.filter import shard_sets
from stages.filter.schemas import SCORED
from stages.filter.selection import rule as selection
from stages.filter.selection.config import SelectionConfig
from stages.filter.selection.scored_rows import ScoredRows
from stages.shards.config import ShardsConfig

UNIT_ROWS = 500
PART = 1_000_000
"""Rows per file of scores."""
SLEEP_SECONDS = 0.25
INSTRUCTION = "replace the red car on the left with a blue bicycle and keep the street as it is, number"
ACTORS = (1, 2, 4)
Row = tuple[str, int, float]
"""What was done, to how many rows or units, in how many seconds."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=sorted(PARTS))
    parser.add_argument("--rows", type=int, help="rows or units of the part, instead of the default")
    options = parser.parse_args()
    if options.part is not None:
        with tempfile.TemporaryDirectory(prefix="filter-scale-") as folder:
            work, rows = PARTS[options.part]
            done = work(Path(folder), options.rows or rows)
        print(json.dumps([done, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024]))
        return 0
    where, load = f"{platform.machine()}, {os.cpu_count()} cores", os.getloadavg()[0]
    print(f"Measured {datetime.now(UTC):%Y-%m-%d} on {where}, load {load:.1f} at the beginning.")
    print("\n| part | work | rows or units | seconds | per second | peak memory of the part |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in PARTS:
        command = [sys.executable, __file__, "--part", name]
        result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        done, memory = json.loads(result.stdout.splitlines()[-1])
        for what, count, seconds in done:
            print(f"| {name} | {what} | {count:,} | {seconds:.2f} | {count / seconds:,.0f} | {memory / 2**30:.2f} GiB |", flush=True)
    return 0


def _actors(folder: Path, count: int) -> list[Row]:
    """Units whose work sleeps, then units whose work does nothing, on 1, 2 and 4 actors; from the first finished unit to the last."""
    cluster = Cluster(RayConfig(num_cpus=8, object_store_mb=150, dashboard=False))
    cluster.connect()
    done: list[Row] = []
    for sleep, number in ((SLEEP_SECONDS, count // 5), (0.0, count)):
        for actors in ACTORS:
            step = StepFolder(folder / f"{sleep}-{actors}", "filter")
            todo = [units.Unit(settings_hash(sleep, actors, n), n, UNIT_ROWS) for n in range(number)]
            run_units(step, todo, partial(_make_work, sleep), cluster=cluster, workers=actors)
            finished = sorted(path.stat().st_mtime for path in step.path.glob("units/*/scores.parquet"))
            what = f"units that sleep {sleep} s" if sleep else "units without work"
            done.append((f"{what}, {actors} actor{'s' if actors > 1 else ''}", number - 1, finished[-1] - finished[0]))
    cluster.close()
    return done


def _make_work(sleep: float) -> units.Work:
    table = pa.table({"sample_id": [f"{n:024x}" for n in range(UNIT_ROWS)], "overall_mean": np.zeros(UNIT_ROWS)})

    def work(_: int) -> units.UnitOutput:
        time.sleep(sleep)
        return units.UnitOutput({"scores": table}, UNIT_ROWS, UNIT_ROWS)

    return work


def _rows(folder: Path, count: int) -> list[Row]:
    """A list of triplets read and cut into slices, which the driver holds to the end."""
    with open(folder / "edits.jsonl", "w") as file:
        for number in range(count):
            row = {"source": f"image/{number}_0.png", "instruction": f"{INSTRUCTION} {number}", "edited": f"image/{number}_1.png"}
            file.write(json.dumps(row) + "\n")
    config = TripletEdits(dataset="triplets", path=str(folder / "edits.jsonl"))
    return [("rows of a list of triplets planned", count, _timed(lambda: edits.plan(config, seed=0, world=None, unit_rows=UNIT_ROWS)))]


def _planning(folder: Path, count: int) -> list[Row]:
    """Units named, and their log read."""
    config = WorldEdits(dataset="world-edits", count=count)
    slices: list[edits.Slice] = []
    named: list[units.Unit] = []
    log = folder / "units.jsonl"
    done = [
        ("slices of a data set", count, _timed(lambda: slices.extend(edits.plan(config, seed=0, world=WorldConfig(), unit_rows=1)))),
        (
            "units named by their content",
            count,
            _timed(lambda: named.extend(units.Unit(settings_hash("u", s.fingerprint), s, 1) for s in slices)),
        ),
    ]
    with open(log, "w") as file:
        for unit in named:
            file.write(unit_log.line(units.UnitRecord(unit.key, {}, 1, 1)))
    done.append(("log lines read at a resume", count, _timed(lambda: unit_log.sound(StepFolder(folder, "filter")))))
    return done


def _resuming(folder: Path, count: int) -> list[Row]:
    """Done units whose files are hashed again, as a resumed step does."""
    table = contracts.table("quarantine", [])
    records = []
    for number in range(count):
        key = f"{number:024x}"
        parts = units.publish_unit(folder, key, {"scores": table, "edits": table, "quarantine": table})
        records.append(units.UnitRecord(key, parts, 0, 0))
    log = folder / "units.jsonl"
    log.write_text("".join(unit_log.line(record) for record in records))
    step = StepFolder(folder, "f")
    seconds = _timed(lambda: [unit_log.is_whole(step, record) for record in unit_log.sound(step).values()])
    return [("done units checked at a resume, 3 files each", count, seconds)]


def _selection(folder: Path, count: int) -> list[Row]:
    """The best 43 %, and a random share, with their files."""
    rules = (
        ("top", SelectionConfig(name="a", rule="top", fraction=0.43)),
        ("random", SelectionConfig(name="a", rule="random", fraction=0.43)),
    )
    with tables.opened(folder) as database:
        rows = _scored_rows(database, folder, count)
        return [(f"rule {name}", count, _timed(lambda rule=rule: _select(rows, rule, folder))) for name, rule in rules]


def _sharding(folder: Path, count: int) -> list[Row]:
    """Shards of all of the scores planned: order, membership, names by content."""
    slices = edits.plan(WorldEdits(dataset="world-edits", count=count), seed=0, world=WorldConfig(), unit_rows=UNIT_ROWS)
    step, config = StepFolder(folder, "filter"), ShardsConfig()
    with tables.opened(folder) as database:
        rows = _scored_rows(database, folder, count)
        made = {"a": _select(rows, SelectionConfig(name="a", rule="all"), folder)}
        assign = partial(shard_sets.assign, step, config, made, rows, slices, {"a": {}}, folder)
        return [("selected rows put into shards", count, _timed(assign))]


def _select(rows: ScoredRows, config: SelectionConfig, folder: Path) -> Path:
    storage.publish_rows(folder / "selected", contracts.SELECTION, selection.select(rows, config).rows)
    return folder / "selected"


def _scored_rows(database: tables.Tables, folder: Path, count: int) -> ScoredRows:
    """Scores in files of a million rows."""
    parts = []
    for first in range(0, count, PART):
        rows = min(PART, count - first)
        numbers = pa.array(np.arange(first, first + rows))
        columns = dict(zip(contracts.SCORES.names, _scores(rows, first).columns, strict=True))
        columns |= {"number": numbers, "position": pc.binary_join_element_wise("edits[", pc.cast(numbers, pa.string()), "]", "")}
        columns["image_bytes"] = np.full(rows, 600_000)
        table = pa.table({field.name: columns.get(field.name, pa.nulls(rows, field.type)) for field in SCORED}).cast(SCORED)
        parts.append(Part(f"scores-{first}.parquet", rows, ""))
        storage.publish_rows(folder / parts[-1].path, SCORED, table.to_batches())
    return ScoredRows.of(database, StepFolder(folder, "filter"), {"scores": parts})


def _scores(count: int, seed: int) -> pa.Table:
    """Rows of the ``scores`` contract."""
    rng = np.random.default_rng(seed)
    digits = pa.py_buffer(rng.bytes(ID_DIGITS // 2 * count).hex().encode())
    ids = pa.Array.from_buffers(pa.binary(ID_DIGITS), count, [None, digits]).cast(pa.binary()).cast(pa.string())
    value = np.round(rng.normal(size=count), 5)
    one = [{"dimension": name, "mean": 0.1, "sigma": 0.1, "likert": None} for name in ("instruction_following", "visual_quality")]
    schema = contracts.SCHEMAS["scores"]
    repeated = {"dimensions": one, "flags": [], "scorer_revision": "0" * 24, "task": "", "language": "en"}
    columns = {
        name: pa.array([content], schema.field(name).type).take(pa.array(np.zeros(count, np.int64))) for name, content in repeated.items()
    }
    columns |= {"sample_id": ids, "overall_mean": value, "overall_sigma": np.abs(value), "change_from_source": np.abs(value)}
    return pa.table({name: columns[name] for name in schema.names}).cast(schema)


def _timed(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


PARTS: dict[str, tuple[Callable[[Path, int], list[Row]], int]] = {
    "actors": (_actors, 200),
    "rows": (_rows, 500_000),
    "planning": (_planning, 1_000_000),
    "resuming": (_resuming, 5_000),
    "selection": (_selection, 10_000_000),
    "sharding": (_sharding, 1_000_000),
}
"""Per part the work, and its rows or units."""


if __name__ == "__main__":
    sys.exit(main())
