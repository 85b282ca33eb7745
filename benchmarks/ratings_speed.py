"""How long the paper's volume of ratings takes: 9,557 groups of 7, two dimensions, a fifth of the groups rated twice.

    python benchmarks/ratings_speed.py

Makes a run whose candidates have ids but no images, writes about 160,000 ratings in several formats, ingests each into a ledger of its own
and then again, and makes preferences of them. Writes the table into benchmarks/RESULTS.md between its markers; exits with 1 when reading a
file takes more than 30 s.
"""

from __future__ import annotations

import argparse
import platform
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from benchmarks import results
from stages.annotate import step as annotate
from stages.annotate.agreement import alpha as agreement
from stages.annotate.config import AnnotateConfig
from stages.annotate.ratings.rating_task import generated_task
from stages.config import FlowConfig
from stages.context import Context
from stages.engine import contracts
from stages.engine.cluster import Cluster
from stages.engine.config import RayConfig
from stages.engine.ids import content_id, uniform
from stages.engine.rundir import Index, RunDir
from stages.engine.units import publish_unit
from stages.preferences import step as preferences

TARGET = 30.0
EDITORS = tuple(f"editor-{number}" for number in range(12))
TASKS = ("add", "colour", "style", "remove", "background")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=9_557)
    parser.add_argument("--overlap", type=float, default=0.2)
    parser.add_argument("--write", action=argparse.BooleanOptionalAction, default=True, help="write the table into RESULTS.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measured = measure(options, Path(folder))
    text = table(options, measured)
    print(text)
    if options.write:
        results.write("ratings-speed", text)
    slow = [what for what, entry in measured.items() if what.startswith("ingest") and entry["cpu"] > TARGET]
    for what in slow:
        print(f"missed: {what} takes more than {TARGET:g} CPU seconds", file=sys.stderr)
    return 1 if slow else 0


def measure(options: argparse.Namespace, folder: Path) -> dict[str, dict[str, float]]:
    """Seconds by what was done."""
    context = make_run(folder / "run", options.groups)
    work = generated_task(context)
    ratings = pa.Table.from_pylist(list(rows(work.sampled, work.dimensions, options.overlap)))
    pa.csv.write_csv(ratings, folder / "long.csv")
    pq.write_table(ratings, folder / "long.parquet")
    measured: dict[str, dict[str, float]] = {}
    for name in ("long.parquet", "long.csv"):
        shutil.rmtree(folder / "run" / "annotate", ignore_errors=True)
        index = timed(measured, f"ingest {name}", lambda name=name: annotate.ingest(context, [folder / name])).index
        assert index.counts["out"] == ratings.num_rows, index.counts
        timed(measured, f"the same {name} again", lambda name=name: annotate.ingest(context, [folder / name]))
    more = ratings.set_column(ratings.column_names.index("round"), "round", pa.array(["reannotation"] * ratings.num_rows))
    pa.csv.write_csv(more.slice(0, 14), folder / "more.csv")
    timed(measured, "one more group into the full ledger", lambda: annotate.ingest(context, [folder / "more.csv"]))
    ledger, tasks = context.run.step("annotate").read("ratings"), {group: TASKS[n % len(TASKS)] for n, group in enumerate(work.sampled)}
    timed(measured, "agreement with intervals", lambda: agreement.summary(ledger, work.scale.levels, seed=0))
    timed(measured, "agreement by kind of edit", lambda: agreement.by_task(ledger, tasks, work.scale.levels, seed=0))
    timed(measured, "preferences with statistics", lambda: preferences.run(context))
    measured["ratings"] = {"count": ratings.num_rows}
    return measured


def timed(measured: dict[str, dict[str, float]], what: str, work: Callable[[], Any]) -> Any:
    """Do it, and note the seconds of the clock and of the processor."""
    wall, cpu = time.monotonic(), time.process_time()
    result = work()
    measured[what] = {"wall": time.monotonic() - wall, "cpu": time.process_time() - cpu}
    print(f"{what}: {measured[what]['wall']:.1f} s, {measured[what]['cpu']:.1f} CPU s", file=sys.stderr, flush=True)
    return result


def make_run(path: Path, groups: int) -> Context:
    """A run with a done generate step of twelve candidates per source, seven of them to be rated."""
    context = Context(RunDir(path), FlowConfig(name="speed", annotate=AnnotateConfig()), Cluster(RayConfig()))
    sources: list[dict[str, Any]] = []
    candidates: list[dict[str, Any]] = []
    drawn: list[dict[str, Any]] = []
    for number in range(groups):
        source_id = content_id("source", number)
        names = {"source_id": source_id, "dataset": "speed", "split": "validation" if number % 10 == 9 else "train", "group": source_id}
        row = names | {
            "image": None,
            "instruction": f"edit {number}",
            "language": "en",
            "task": TASKS[number % len(TASKS)],
            "metadata": "{}",
            "benchmark": "",
            "licence": "",
        }
        sources.append(row)
        for place, editor in enumerate(EDITORS):
            candidate_id = content_id("candidate", number, place)
            candidates.append(contracts.candidate(candidate_id=candidate_id, source_id=source_id, editor=editor, editor_revision="1"))
            if (place + number) % 12 < 7:
                drawn.append({"source_id": source_id, "candidate_id": candidate_id})
    tables = {name: contracts.table(name, rows) for name, rows in {"sources": sources, "candidates": candidates, "drawn": drawn}.items()}
    folder = context.run.step("generate")
    parts = publish_unit(folder.path, "unit", tables)
    folder.publish(Index("generate", "key", {}, {}, artifacts={name: [part] for name, part in parts.items()}))
    return context


def rows(sampled: Any, dimensions: tuple[str, ...], overlap: float) -> Iterator[dict[str, Any]]:
    """Ratings of twenty raters, groups rated whole, a share of them by two."""
    for place, (group, candidates) in enumerate(sampled.items()):
        for turn in range(1 + (uniform("overlap", group) < overlap)):
            who = f"rater-{(place + 7 * turn) % 20:02d}"
            for candidate in candidates:
                level = 4 * uniform("level", candidate)
                for dimension in dimensions:
                    score = 1 + int(min(3.999, max(0, level + 0.8 * (uniform(who, candidate, dimension) - 0.5))))
                    row = {"group_id": group, "candidate_id": candidate, "dimension": dimension, "annotator_id": who, "score": score}
                    yield row | {"rated_at": "2025-03-31T14:05:00+02:00", "round": "production", "seconds": 5.5, "comment": ""}


def table(options: argparse.Namespace, measured: dict[str, dict[str, float]]) -> str:
    """The seconds as Markdown."""
    count = int(measured["ratings"]["count"])
    lines = [
        f"Command: `python benchmarks/ratings_speed.py --groups {options.groups} --overlap {options.overlap:g}`",
        f"Measured {datetime.now(UTC):%Y-%m-%d} on {platform.machine()}, Python {platform.python_version()}; "
        f"CPU seconds are what it costs. {count:,} ratings of {options.groups:,} groups; at most "
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GiB of memory.",
        "",
        "| what | seconds | CPU seconds |",
        "| --- | --- | --- |",
    ]
    return "\n".join(lines + [f"| {what} | {e['wall']:.1f} | {e['cpu']:.1f} |" for what, e in measured.items() if "wall" in e])


if __name__ == "__main__":
    sys.exit(main())
