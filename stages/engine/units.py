"""Units of work: a step is cut into units, which are published one by one and skipped when up to date.

The key of a unit is the hash of its inputs and settings, so it means the same on every machine. A worker turns a unit into tables and
publishes them as one folder ``units/<key>/``; then the driver writes the unit's hashes to ``units.jsonl``. A unit is done when it is in
that log and its files still have those hashes. After a crash a rerun does the missing units. Batches never cross units, so the number of
workers does not change a byte.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from stages.engine import storage
from stages.engine.contracts import Quarantined
from stages.engine.ids import settings_hash
from stages.engine.rundir import Part, StepFolder, Tables


@dataclass(frozen=True)
class Unit:
    """One piece of work. ``key``: hash of inputs and settings; ``payload``: argument of the work function; ``rows``: for the progress bar;
    ``name``: for the error message; ``family``: what units of other rows of the same whole have in common, for who looks for them later."""

    key: str
    payload: Any
    rows: int
    name: str = ""
    family: str = ""


@dataclass(frozen=True)
class UnitOutput:
    """Result of a unit. Rows in = rows out + quarantined, always. ``figures``: times and counts for the log; never in tables. ``seen``:
    what the unit's inputs were like beyond what its key says, for who resumes the step."""

    tables: Mapping[str, pa.Table]
    rows_in: int
    rows_out: int
    quarantine: Sequence[Quarantined] = ()
    figures: Mapping[str, float] = field(default_factory=dict)
    seen: str = ""


@dataclass(frozen=True)
class UnitRecord:
    """A finished unit, as logged."""

    key: str
    parts: dict[str, Part]
    rows_in: int
    rows_out: int
    quarantined: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)
    family: str = ""
    seen: str = ""


PART_ROWS = 1 << 18
"""Rows of a part of a table that the driver decides on: such a table may be too large for memory."""

Work = Callable[[Any], UnitOutput]


@dataclass(frozen=True)
class Done:
    """All finished units of a step, in their order."""

    records: list[UnitRecord]

    def tables(self) -> Tables:
        """Fields of the step's index that the units give."""
        return {"artifacts": self.artifacts(), "counts": self.counts(), "quarantined": self.quarantined()}

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


def publish_unit(folder: Path, key: str, tables: Mapping[str, pa.Table]) -> dict[str, Part]:
    """Write the tables of a unit into ``units/<key>/`` in one rename."""
    hashes = _publish_files(folder, key, ((name, storage.table_bytes(table)) for name, table in tables.items()))
    return {name: _part(key, name, table, hashes[name]) for name, table in tables.items()}


def publish_table(step: StepFolder, artifact: str, table: pa.Table) -> list[Part]:
    """A table that the driver decided, under a name made of its content: the files of an earlier index stay until the next index is
    published.

    Nothing for a table without rows.
    """
    if not table.num_rows:
        return []
    content = storage.table_bytes(table)
    sha256 = hashlib.sha256(content).hexdigest()
    key = settings_hash(artifact, sha256)
    part = _part(key, artifact, table, sha256)
    if not step.has(part.path, sha256):
        _publish_files(step.path, key, [(artifact, content)])
    return [part]


def _part(key: str, name: str, table: pa.Table, sha256: str) -> Part:
    return Part(path=f"units/{key}/{name}.parquet", rows=table.num_rows, sha256=sha256)


def _publish_files(folder: Path, key: str, files: Iterable[tuple[str, bytes]]) -> dict[str, str]:
    """Write files of these names and contents into ``units/<key>/`` in one rename; sha256 by name."""
    target = folder / "units" / key
    partial = storage.partial_folder(target)
    hashes = {name: storage.publish_bytes(partial / f"{name}.parquet", content) for name, content in files}
    storage.replace_folder(partial, target)
    return hashes


def publish_batches(step: StepFolder, artifact: str, rows: Iterable[pa.RecordBatch]) -> list[Part]:
    """A table that the driver decided, of any length, in parts of ``PART_ROWS`` rows."""
    return [part for table in storage.even(rows, PART_ROWS) for part in publish_table(step, artifact, table)]
