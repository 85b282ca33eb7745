"""Seconds and memory of selections from scores that do not fit in memory, one row per rule and number of scores.

    python benchmarks/selection_speed.py --rows 1000000 5000000 20000000 50000000 --scratch FOLDER

Draws scores with tasks and sources, writes them as the filter step does, and makes each selection in a process of its own, with its file.
Prints a table and writes it into benchmarks/RESULTS.md between its markers: seconds, processor microseconds per score, and the most memory
that the process had. The folder needs 200 bytes per score.
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
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import results
from stages.engine import contracts, storage, tables
from stages.engine.rundir import Part, StepFolder
from stages.filter.schemas import SCORED
from stages.filter.selection import rule as selection
from stages.filter.selection.config import SelectionConfig
from stages.filter.selection.scored_rows import ScoredRows

PART = 500_000
"""Rows per Parquet file: a part of the scores artifact."""
TASKS = 8
EDITS_PER_SOURCE = 3
RULES: dict[str, dict[str, Any]] = {
    "top": {"rule": "top", "fraction": 0.43},
    "top, proportional quotas by task": {"rule": "top", "fraction": 0.43, "quotas": {"by": "task", "shares": "proportional"}},
    "top, at most 1 per source": {"rule": "top", "fraction": 0.2, "at_most": {"per": "source", "count": 1}},
    "random, like top by task": {"rule": "random", "like": "top", "quotas": {"by": "task", "shares": "like"}},
    "top, quantile": {"rule": "top", "quantile": 0.57},
    "top, product of percentiles": {"rule": "top", "value": "product", "scale": "percentile", "fraction": 0.43},
}
"""The first one comes first: a later one is like it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 5_000_000])
    parser.add_argument("--rules", nargs="+", choices=RULES, default=list(RULES), metavar="RULE")
    parser.add_argument("--scratch", type=Path, help="folder on a disk with room; default: the system's for temporary files")
    parser.add_argument("--write", action=argparse.BooleanOptionalAction, default=True, help="write the table into RESULTS.md")
    parser.add_argument("--one", nargs=2, metavar=("FOLDER", "RULE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(select(Path(options.one[0]), options.one[1])))
        return
    lines = ["| scores | rule | samples kept | s | CPU µs per score | GB at the peak |", "| --- | --- | --- | --- | --- | --- |"]
    print("\n".join(lines), flush=True)
    for rows in options.rows:
        with tempfile.TemporaryDirectory(dir=options.scratch) as folder:
            for first in range(0, rows, PART):
                draw(Path(folder), first, min(PART, rows - first))
            for name in options.rules:
                command = [sys.executable, __file__, "--one", folder, name]
                found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
                figures = f"{found['seconds']:.1f} | {found['cpu'] / rows * 1e6:.2f} | {found['memory'] / 1e9:.2f}"
                lines.append(f"| {rows:,} | {name} | {found['samples']:,} | {figures} |")
                print(lines[-1], flush=True)
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    text = (
        f"Command: `python benchmarks/selection_speed.py --rows {' '.join(map(str, options.rows))}`\n"
        f"Measured {datetime.now(UTC).date()} on {platform.machine()}, {os.cpu_count()} cores, load {load} at the end.\n\n"
        + "\n".join(lines)
    )
    if options.write:
        results.write("selection-speed", text)


def select(folder: Path, name: str) -> dict[str, float]:
    """Make a selection and write its file, as the filter step does."""
    parts = [Part(path.name, pq.read_metadata(path).num_rows, "") for path in sorted(folder.glob("*.parquet"))]
    before = resource.getrusage(resource.RUSAGE_SELF)
    started = time.monotonic()
    with tables.opened(folder) as database:
        rows = ScoredRows.of(database, StepFolder(folder, "filter"), {"scores": parts})
        config = SelectionConfig.model_validate({"name": "top" if name == "top" else "chosen", **RULES[name]})
        made = selection.select(rows, config, {"top": folder / "selected" / "top"})
        storage.publish_rows(folder / "selected" / config.name, contracts.SELECTION, made.rows)
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": time.monotonic() - started, "cpu": cpu, "memory": after.ru_maxrss * 1024, "samples": made.count}


def draw(folder: Path, first: int, rows: int) -> None:
    """One part of the scores with ``rows`` rows, drawn with ``first`` as the seed; texts that no rule reads are short."""
    rng = np.random.default_rng(first)
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)[rng.integers(0, 16, (rows, 24), np.uint8)]
    ids = pa.array(np.ascontiguousarray(digits).view("S24")[:, 0]).cast(pa.string())
    means = rng.normal(size=(rows, 2)).round(5)
    entries = pa.StructArray.from_arrays(
        [
            pa.DictionaryArray.from_arrays(np.tile([0, 1], rows), pa.array(contracts.DIMENSIONS)).cast(pa.string()),
            pa.array(means.ravel()),
            pa.array(rng.uniform(0.5, 1.5, 2 * rows).round(5)),
            pa.array((2.5 + 0.5 * means.ravel()).clip(1, 4).round(5)),
        ],
        fields=list(contracts.SCORES.field("dimensions").type.value_type),
    )
    columns = {
        "sample_id": ids,
        "scorer_revision": pa.repeat("r", rows),
        "dimensions": pa.ListArray.from_arrays(np.arange(0, 2 * rows + 1, 2, dtype=np.int32), entries),
        "overall_mean": means.mean(axis=1).round(5),
        "overall_sigma": rng.uniform(0.5, 1.5, rows).round(5),
        "change_from_source": rng.uniform(0, 100, rows).round(5),
        "task": pa.array([f"task-{number}" for number in range(TASKS)]).take(pa.array(rng.integers(0, TASKS, rows))),
        "language": pa.repeat("en", rows),
        "flags": pa.array([[]] * rows, pa.list_(pa.string())),
    }
    sources = rng.integers(first, first + rows // EDITS_PER_SOURCE + 1, rows)
    columns["source_sha256"] = pa.array([f"{source:064x}" for source in sources.tolist()])
    for field in SCORED:
        if field.name not in columns:
            columns[field.name] = pa.repeat("x" if field.type == pa.string() else 1, rows)
    table = pa.table({name: columns[name] for name in SCORED.names}).cast(SCORED)
    storage.publish_rows(folder / f"{first:012d}.parquet", SCORED, table.to_batches())


if __name__ == "__main__":
    main()
