"""Seconds and memory of selections from many scores, one row per rule.

    python benchmarks/selection_speed.py --rows 10000000

Draws scores with tasks and sources, writes them as the filter step does, reads back what each rule needs and selects. Prints a table
and writes it into benchmarks/RESULTS.md between its markers: seconds to read the columns, seconds and processor seconds to select, and the
most memory that selecting took beyond the table it read.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import results
from stages.engine import contracts
from stages.filter.selection import rule as selection
from stages.filter.selection.config import SelectionConfig
from stages.filter.selection.side_columns import SideColumns
from stages.filter.selection.values import columns_of

PART = 500_000
"""Rows per Parquet file: a part of the scores artifact."""
TASKS = 16
EDITS_PER_SOURCE = 3
RULES: dict[str, dict[str, Any]] = {
    "top": {"rule": "top", "fraction": 0.43},
    "all (a whole sort)": {"rule": "all"},
    "random": {"rule": "random", "fraction": 0.43},
    "top, threshold": {"rule": "top", "threshold": 0.2},
    "top, quantile": {"rule": "top", "quantile": 0.57},
    "top, lower bound": {"rule": "top", "value": "lower-bound", "fraction": 0.43},
    "top, minimum of Likert": {"rule": "top", "value": "minimum", "fraction": 0.43},
    "top, product of percentiles": {"rule": "top", "value": "product", "scale": "percentile", "fraction": 0.43},
    "top, proportional quotas by task": {"rule": "top", "fraction": 0.43, "quotas": {"by": "task", "shares": "proportional"}},
    "top, at most 1 per source": {"rule": "top", "fraction": 0.2, "at_most": {"per": "metadata.source", "count": 1}},
    "random, like top by task": {"rule": "random", "like": "top", "quotas": {"by": "task", "shares": "like"}},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--write", action=argparse.BooleanOptionalAction, default=True, help="write the table into RESULTS.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        paths = [draw(Path(folder), first, min(PART, options.rows - first)) for first in range(0, options.rows, PART)]

        def read(artifact: str, columns: list[str]) -> pa.Table:
            schema = pa.schema([contracts.SCHEMAS[artifact].field(name) for name in columns])
            return pa.concat_tables([pq.read_table(path / f"{artifact}.parquet", columns=columns).cast(schema) for path in paths])

        lines = ["| rule | samples kept | s to read | s to select | CPU s | MiB to select |", "| --- | --- | --- | --- | --- | --- |"]
        made: dict[str, pa.Table] = {}
        for name, settings in RULES.items():
            config = SelectionConfig(name="top" if name == "top" else "chosen", **settings)
            started = time.monotonic()
            scores = read("scores", columns_of(config))
            seconds = time.monotonic() - started
            side_columns = SideColumns(read)
            found, selecting, cpu, memory = measured(lambda c=config, s=scores, o=side_columns: selection.select(s, c, o, made).table)
            if name == "top":
                made["top"] = found
            lines.append(f"| {name} | {found.num_rows:,} | {seconds:.1f} | {selecting:.1f} | {cpu:.1f} | {memory / 2**20:,.0f} |")
            print(lines[-1], flush=True)
            del scores, found
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    text = (
        f"Command: `python benchmarks/selection_speed.py --rows {options.rows}`\n"
        f"Measured {datetime.now(UTC).date()} on {platform.machine()}, {os.cpu_count()} cores, load {load} at the end.\n\n"
        + "\n".join(lines)
    )
    if options.write:
        results.write("selection-speed", text)


def draw(folder: Path, first: int, rows: int) -> Path:
    """One part of scores and edits with ``rows`` rows, drawn with ``first`` as the seed."""
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
    path = folder / f"{first:012d}"
    path.mkdir()
    pq.write_table(pa.table(columns).cast(contracts.SCORES), path / "scores.parquet")
    sources = rng.integers(first, first + rows // EDITS_PER_SOURCE + 1, rows)
    metadata = pa.array([f'{{"source": "{source}"}}' for source in sources.tolist()])
    pq.write_table(pa.table({"sample_id": ids, "metadata": metadata}), path / "edits.parquet")
    return path


def measured(work: Callable[[], pa.Table]) -> tuple[pa.Table, float, float, int]:
    """What the work returns, its seconds, its processor seconds, and how far resident memory rose, sampled fifty times a second."""
    process, ended, peak = psutil.Process(), threading.Event(), 0
    before = process.memory_info().rss

    def watch() -> None:
        nonlocal peak
        while not ended.wait(0.02):
            peak = max(peak, process.memory_info().rss - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    started, processor = time.monotonic(), time.process_time()
    try:
        result = work()
    finally:
        seconds, processor = time.monotonic() - started, time.process_time() - processor
        ended.set()
        watcher.join()
    return result, seconds, processor, peak


if __name__ == "__main__":
    main()
