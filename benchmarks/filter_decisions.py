"""What the driver of the filter needs to decide on many inspected edits: time per edit and memory, phase by phase.

    python benchmarks/filter_decisions.py --rows 1000000 5000000 20000000 --near 10000 100000 1000000 --write

The inspected and scored edits are synthetic: units of 5,000 rows as workers publish them, three edits per source, four per instruction,
one row in a hundred a copy and one in twenty too small for a gate. 10,000 references, of which 1,000 match by their bytes. All gates that
need no file of the user are on. Time is that of the processor, all threads together. Highest: resident memory of the process within the
phase, DuckDB's gigabyte included. ``--near``: the gate ``near_duplicate`` alone on edits of one instruction, drawn hashes, one in a
hundred near to the one before. Linux only.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from benchmarks import results
from benchmarks.driver_memory import INSTRUCTION, Figures
from stages.contamination import compare
from stages.contamination.config import ContaminationConfig
from stages.engine import contracts, tables
from stages.engine.rundir import Part, StepFolder
from stages.engine.units import UnitRecord, publish_batches, publish_unit
from stages.filter import decide as gates
from stages.filter import decontamination, inspection, scored
from stages.filter.gates import near_duplicate
from stages.filter.gates.config import GATES, GatesConfig
from stages.filter.schemas import INSPECTED

UNIT_ROWS = 5000
SMALL, COPY = "number % 20 = 0", "number % 100 = 99"
OF_TYPE = {
    "VARCHAR": {
        "sample_id": f"substr(md5((CASE WHEN {COPY} THEN number - 7 ELSE number END)::VARCHAR), 1, 24)",
        "row_id": "number::VARCHAR",
        "position": "'edits.jsonl[' || number || ']'",
        "source_sha256": "sha256((number // 3)::VARCHAR)",
        "edited_sha256": "sha256(number::VARCHAR)",
        "instruction": f"'{INSTRUCTION} ' || (hash(number) % {{texts}})",
    },
    "INTEGER": {"text_faults": "0", "characters": "100", "asked_words": "9"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="*", default=[1_000_000])
    parser.add_argument("--near", type=int, nargs="*", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--write", action="store_true", help="write the tables to benchmarks/RESULTS.md")
    arguments = parser.parse_args()
    lines = ["| edits | phase | µs of a core per edit | highest memory, MB |", "| --- | --- | --- | --- |"]
    for rows in arguments.rows:
        with tempfile.TemporaryDirectory(prefix="filter-decisions-") as folder:
            for phase, found in _apart(phases, StepFolder(Path(folder), "filter"), rows):
                lines.append(f"| {rows:,} | {phase} | {1e6 * found.seconds / rows:.1f} | {found.highest / 1e6:,.0f} |")
                print(lines[-1], flush=True)
    near = ["| edits of one instruction | seconds of a core | µs of a core per edit | caught |", "| --- | --- | --- | --- |"]
    for rows in arguments.near:
        seconds, caught = near_duplicates(rows)
        near.append(f"| {rows:,} | {seconds:.1f} | {1e6 * seconds / rows:.1f} | {caught:,} |")
        print(near[-1], flush=True)
    text = "\n".join([*lines, "", *near])
    if arguments.write:
        results.write("filter decisions", text)


def _apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a function in a process of its own, so that no memory of another measurement is left."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def phases(step: StepFolder, rows: int) -> list[tuple[str, Figures]]:
    config = GatesConfig.model_validate({"size": {"action": "drop", "shortest_side": 100}})
    given, records = prepare(step, rows)
    figures = {name: Figures() for name in ("rows read, gates of one edit", "copies", "gates", "contamination", "scores with flags")}
    read, copies, gated, contamination, scores = (found.watching for found in figures.values())
    with tables.opened(step.path) as database:
        database.view("inspected", [step.path / part.path for part in given], INSPECTED)
        read(gates.read)(database, config)
        copies(inspection.find_copies)(database)
        parts = {"gated": gated(decided)(step, database, config)}
        left, marks = inspection.fates(database, rows)
    found = inspection.Inspection(left, marks, given, parts, rows, {}, 0, {})
    known = compare.References([references(step)], {}, {})
    left_rows = decontamination._left(step, found)
    compared = contamination(compare.compare)(step, left_rows, known, ContaminationConfig())
    marks[compared.counted] |= inspection.bit_of(compare.NAME)
    made = scores(scored.assemble)(step, records, found, [*GATES, compare.NAME])
    assert made.out == int(left.sum()), "every edit that is left is scored"
    return [*figures.items()]


def decided(step: StepFolder, database: tables.Tables, config: GatesConfig) -> list[Part]:
    gates.decide(database, config)
    return publish_batches(step, "gated", gates.gated(database, config))


def prepare(step: StepFolder, rows: int) -> tuple[list[Part], list[list[UnitRecord]]]:
    """Units of inspection and scoring."""
    columns = {name: f"(hash(number, '{name}') % 1000000) / 1e6" for name in INSPECTED.names}
    columns |= {name: f"hash(number, '{name}')" for name in columns if name.endswith("_phash")}
    columns |= {name: f"CASE WHEN {SMALL} THEN 64 ELSE 1024 END::INTEGER" for name in columns if name.endswith(("_width", "_height"))}
    columns |= OF_TYPE["VARCHAR"] | {name: f"{value}::INTEGER" for name, value in OF_TYPE["INTEGER"].items()}
    columns["instruction"] = columns["instruction"].format(texts=max(1, rows // 4))
    images = "{'bytes': NULL::BLOB, 'path': 'image/' || number || '.png'}"
    edits = dict.fromkeys(contracts.EDITS.names, "''") | {name: columns[name] for name in ("sample_id", "position", "instruction")}
    edits |= {"source": images, "edited": images, "image_bytes": "600000::BIGINT"}
    scores: dict[str, str] = dict.fromkeys(contracts.SCORES.names, "''") | {"sample_id": columns["sample_id"]}
    scores |= dict.fromkeys(("overall_mean", "overall_sigma", "change_from_source"), columns["fine_detail"])
    dimensions = (f"{{'dimension': '{name}', 'mean': 0.5, 'sigma': 0.5, 'likert': NULL}}" for name in contracts.DIMENSIONS)
    scores |= {"flags": "[]::VARCHAR[]", "dimensions": f"[{', '.join(dimensions)}]"}
    (step.path / "units").mkdir()
    connection = duckdb.connect(config={"threads": len(os.sched_getaffinity(0))})

    def write(first: int, name: str, columns: dict[str, str], schema: pa.Schema, where: str = "TRUE") -> Part:
        path = f"units/{name}-{first}.parquet"
        values = ", ".join(f"{columns[field]} AS {field}" for field in schema.names)
        numbers = f"range({first}, {min(first + UNIT_ROWS, rows)}) AS made(number)"
        connection.execute(f"COPY (SELECT {values} FROM {numbers} WHERE {where} ORDER BY number) TO '{step.path / path}'")
        return Part(path, -1, "")

    inspected, records = [], []
    nothing = publish_nothing(step)
    for first in range(0, rows, UNIT_ROWS):
        inspected.append(write(first, "inspected", columns, INSPECTED))
        left = f"NOT ({SMALL} OR {COPY})"
        parts = {
            "edits": write(first, "edits", edits, contracts.EDITS, left),
            "scores": write(first, "scores", scores, contracts.SCORES, left),
        }
        records.append([UnitRecord(str(first), parts | {"quarantine": nothing}, UNIT_ROWS, UNIT_ROWS)])
    return inspected, records


def publish_nothing(step: StepFolder) -> Part:
    """A quarantine without rows."""
    return publish_unit(step.path, "nothing", {"quarantine": contracts.table("quarantine", [])})["quarantine"]


def references(step: StepFolder) -> Path:
    query = (
        "SELECT 'bench' AS reference, number::VARCHAR AS item, sha256((CASE WHEN number < 1000 THEN number ELSE -number END)::VARCHAR) "
        "AS source_sha256, hash(number) AS source_phash, 'x ' || number AS instruction FROM range(10000) AS made(number)"
    )
    path = step.path / "references.parquet"
    duckdb.connect().execute(f"COPY ({query}) TO '{path}'")
    return path


def near_duplicates(rows: int) -> tuple[float, int]:
    """Seconds of the gate, and what it caught."""
    draw = np.random.default_rng(0)
    hashes = draw.integers(-(2**63), 2**63, (3, rows))
    again = np.arange(50, rows, 100)
    hashes[:, again] = hashes[:, again - 1] ^ 5
    schema = pa.schema([("number", pa.int64()), ("instruction", pa.string()), *((name, pa.int64()) for name in near_duplicate.HASHES)])

    def batches() -> Iterator[pa.RecordBatch]:
        for first in range(0, rows, tables.BATCH_ROWS):
            numbers = np.arange(first, min(first + tables.BATCH_ROWS, rows))
            yield pa.record_batch([pa.array(numbers), pa.array(["make it red"] * len(numbers)), *hashes[:, numbers]], schema=schema)

    with tempfile.TemporaryDirectory() as folder, tables.opened(folder) as database:
        database.keep(near_duplicate.SEEN, batches(), schema)
        begun = time.process_time()
        query = near_duplicate.compare(database, near_duplicate.NearDuplicateGate())
        caught = database.number(f"SELECT count(*) FROM ({query}) WHERE caught")
        return time.process_time() - begun, caught


if __name__ == "__main__":
    main()
