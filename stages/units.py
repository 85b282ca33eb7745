"""Units of work: run on Ray, published one by one, skipped when already done.

A step cuts its work into units. A unit is named by the hash of its inputs and settings, so it means the same on every machine. A worker
turns a unit into tables and publishes them as one folder ``units/<key>/``; then the driver writes the unit's hashes to ``units.jsonl``.
A unit is done when it is in that log and its files still have those hashes. After a crash a rerun does what is missing. Batches
never cross units, so the number of workers does not change a byte.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import ray
from tqdm import tqdm

from stages import contracts, storage
from stages.cluster import Cluster
from stages.dispatch import Dispatch
from stages.quarantine import Quarantined
from stages.rundir import Part, StepFolder


@dataclass(frozen=True)
class Unit:
    """One piece of work. ``key``: hash of inputs and settings; ``payload``: what the worker needs; ``rows``: for the progress bar;
    ``name``: for people, should it fail."""

    key: str
    payload: Any
    rows: int
    name: str = ""


@dataclass(frozen=True)
class UnitOutput:
    """What a worker made of a unit. Rows in = rows out + quarantined, always. ``figures``: what it took; for the log, never in tables."""

    tables: Mapping[str, pa.Table]
    rows_in: int
    rows_out: int
    quarantine: Sequence[Quarantined] = ()
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class UnitRecord:
    """A done unit, as logged."""

    key: str
    parts: dict[str, Part]
    rows_in: int
    rows_out: int
    quarantined: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)


Work = Callable[[Any], UnitOutput]


@dataclass(frozen=True)
class Done:
    """All units of a step, in their order."""

    records: list[UnitRecord]

    def artifacts(self) -> dict[str, list[Part]]:
        """Parts per artifact in unit order; empty parts are left out."""
        merged: dict[str, list[Part]] = {}
        for record in self.records:
            for name, part in record.parts.items():
                merged.setdefault(name, [])
                if part.rows:
                    merged[name].append(part)
        return merged

    def counts(self) -> dict[str, int]:
        """Rows in, out and quarantined; they balance."""
        rows_in = sum(record.rows_in for record in self.records)
        rows_out = sum(record.rows_out for record in self.records)
        quarantined = sum(self.quarantined().values())
        assert rows_in == rows_out + quarantined, f"{rows_in} rows in, {rows_out} out and {quarantined} quarantined"
        return {"in": rows_in, "out": rows_out, "quarantined": quarantined}

    def quarantined(self) -> dict[str, int]:
        """Quarantined rows by reason."""
        total: Counter[str] = Counter()
        for record in self.records:
            total.update(record.quarantined)
        return dict(sorted(total.items()))


def run_units(
    folder: StepFolder,
    units: Sequence[Unit],
    make_work: Callable[[], Work],
    *,
    cluster: Cluster,
    workers: int,
    num_cpus: float = 1.0,
    num_gpus: float = 0.0,
    threads: int = 1,
    rows_are: str = "rows",
    show: Callable[[Sequence[Mapping[str, float]]], str] = lambda _: "",
) -> Done:
    """Do what is not done yet and return the records of all units.

    ``make_work`` is called once in each worker process (load a model there) and returns the function from payload to output; with
    ``threads`` 2, two units are in work in a process at a time. An exception in it ends the command, what is logged as done stays done;
    what happens when a worker dies is said in ``stages.dispatch``. ``show`` turns the figures of the units done by this call into words
    for the progress bar.
    """
    assert len({unit.key for unit in units}) == len(units), "two units have the same key"
    log = folder.path / "units.jsonl"
    done = _sound_records(folder, log, {unit.key for unit in units})
    missing = [unit for unit in units if unit.key not in done]
    if missing:
        cluster.connect()
        folder.path.mkdir(parents=True, exist_ok=True)
        worker: Any = ray.remote(max_restarts=0, max_task_retries=0, max_concurrency=threads, num_cpus=num_cpus, num_gpus=num_gpus)(_Worker)
        total = sum(unit.rows for unit in units)
        before = total - sum(unit.rows for unit in missing)
        dispatch = Dispatch(partial(worker.remote, make_work, str(folder.path)), missing, workers)
        figures = []
        with tqdm(total=total, initial=before, desc=folder.name, unit=f" {rows_are}") as bar, open(log, "a") as file:
            for record in dispatch.records():
                done[record.key] = record
                file.write(json.dumps(asdict(record)) + "\n")
                file.flush()
                os.fsync(file.fileno())
                figures.append(record.figures)
                bar.set_postfix_str(show(figures), refresh=False)
                bar.update(record.rows_in)
    return Done([done[unit.key] for unit in units])


class _Worker:
    """The actor: builds its work function once, with the first unit, then turns units into published folders."""

    def __init__(self, make_work: Callable[[], Work], folder: str) -> None:
        self.make_work = make_work
        self.work: Work | None = None
        self.folder = Path(folder)
        self.making = threading.Lock()

    def node(self) -> str:
        """Id of the node that the worker is on."""
        return ray.get_runtime_context().get_node_id()

    def run(self, unit: Unit) -> UnitRecord:
        with self.making:  # what goes wrong here reaches the driver as it is; Ray hides it when a constructor fails
            self.work = self.work or self.make_work()
        started = time.monotonic()
        output = self.work(unit.payload)
        assert output.rows_in == output.rows_out + len(output.quarantine), f"rows of unit {unit.key} do not balance"
        tables = dict(output.tables) | {"quarantine": contracts.table("quarantine", [asdict(row) for row in output.quarantine])}
        parts = publish_unit(self.folder, unit.key, tables)
        reasons = Counter(row.reason for row in output.quarantine)
        return UnitRecord(
            unit.key,
            parts,
            output.rows_in,
            output.rows_out,
            dict(sorted(reasons.items())),
            round(time.monotonic() - started, 3),
            {name: round(value, 6) for name, value in output.figures.items()},
        )


def publish_unit(folder: Path, key: str, tables: Mapping[str, pa.Table]) -> dict[str, Part]:
    """Write the tables of a unit into ``units/<key>/`` in one rename."""
    target = folder / "units" / key
    partial = storage.partial_folder(target)
    parts = {}
    for name, table in tables.items():
        sha256 = storage.publish_bytes(partial / f"{name}.parquet", storage.table_bytes(table))
        parts[name] = Part(path=f"units/{key}/{name}.parquet", rows=table.num_rows, sha256=sha256)
    storage.replace_folder(partial, target)
    return parts


def _sound_records(folder: StepFolder, log: Path, wanted: set[str]) -> dict[str, UnitRecord]:
    """Logged units whose files still have the logged hashes. A line that is none, as a kill or a full disk leaves it, does not count."""
    if not log.exists():
        return {}
    lines = log.read_text().splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        storage.publish_bytes(log, "".join(lines[:-1]).encode())
        lines.pop()
    records: dict[str, UnitRecord] = {}
    for line in lines:
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if value["key"] in wanted:
            value["parts"] = {name: Part(**part) for name, part in value["parts"].items()}
            records[value["key"]] = UnitRecord(**value)
    return {
        key: record
        for key, record in records.items()
        if all(
            (folder.path / part.path).exists() and storage.sha256_of(folder.path / part.path) == part.sha256
            for part in record.parts.values()
        )
    }
