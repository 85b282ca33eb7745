"""Comparison of sources with the references of a configuration: the references are hashed by workers, then DuckDB finds the matches.

In: the planned units of the references, and the sources as hashes. Out: hits (stages/contamination/match.py), and how many items of each
reference were compared and matched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from stages.contamination import match, references
from stages.contamination.config import Comparison
from stages.engine import contracts, tables
from stages.engine.cluster import Cluster
from stages.engine.ids import settings_hash
from stages.engine.run_units import run_units
from stages.engine.rundir import Part, StepFolder
from stages.engine.tables import PLACE, Tables
from stages.engine.units import Unit, UnitRecord, publish_batches

NAME = "contamination"
Planned = Mapping[str, Sequence[Unit]]
"""Units of the references by name."""


@dataclass(frozen=True)
class References:
    """References as hashes. files: tables of that contract; records: of the units of each reference."""

    files: list[Path]
    records: Mapping[str, Sequence[UnitRecord]]
    artifacts: dict[str, list[Part]]


@dataclass(frozen=True)
class Compared:
    """counted: numbers of the sources that count as contaminated, int64; samples: how many different ids they have; artifacts: to list.

    by_reference: its items, those that could not be read, sources by kind of match, sources that count.
    """

    counted: np.ndarray
    samples: int
    artifacts: dict[str, list[Part]]
    by_reference: dict[str, dict[str, int]]


def units(config: Comparison, key: str) -> dict[str, list[Unit]]:
    """Units of the configured references by name. ``key``: configuration key of ``config``, for messages."""
    return {reference.name: references.units(reference, key) for reference in config.references}


def inputs(planned: Planned) -> dict[str, str]:
    """Fingerprint of each reference."""
    return {f"reference {name}": settings_hash([unit.key for unit in units]) for name, units in planned.items()}


def hashed(step: StepFolder, planned: Planned, key: str, *, cluster: Cluster, workers: int) -> References:
    """Hash the references. Raises ``ValueError`` for one of which nothing can be read: it would wrongly report no match."""
    every = [unit for there in planned.values() for unit in there]
    done = run_units(step, every, references.make_work, cluster=cluster, workers=workers, phase="hash references", rows_are="items")
    logged = iter(done.records)
    records = {name: [next(logged) for _ in there] for name, there in planned.items()}
    _require_readable(step, records, key)
    files = [step.path / record.parts["references"].path for record in done.records]
    artifacts = {
        "references": done.artifacts().get("references", []),
        "unreadable_references": [record.parts["quarantine"] for record in done.records if record.quarantined],
    }
    return References(files, records, artifacts)


def compare(
    step: StepFolder, sources: Iterable[pa.RecordBatch], known: References, config: Comparison, training: Path | None = None
) -> Compared:
    """Matches of sources with the references, and with those in the file ``training``, which a model was trained on.

    sources: rows of ``match.SOURCES``; more than fit in memory.
    """
    with tables.opened(step.path) as database:
        database.keep("sources", sources, match.SOURCES)
        read(database, known, training)
        match.find(database, config.distance, config.counts)
        parts = publish_batches(step, NAME, match.hits(database))
        counted = database.table(f"SELECT DISTINCT {PLACE} FROM hits WHERE counted")[PLACE].to_numpy()
        samples = database.number("SELECT count(DISTINCT sample_id) FROM hits WHERE counted")
        by_reference = _by_reference(database, known.records)
    return Compared(counted, samples, {**known.artifacts, NAME: parts}, by_reference)


def read(database: Tables, known: References, training: Path | None) -> None:
    """Make the table ``items`` of those that a model was trained on and those of all references."""
    match.read(database, tables.batches([training, *known.files] if training else known.files, contracts.REFERENCES))


def settings_of(config: Comparison) -> dict[str, Any]:
    """What a summary says of the settings."""
    return {"action": config.action, "distance": config.distance, "counts": config.counts}


def _by_reference(database: Tables, records: Mapping[str, Sequence[UnitRecord]]) -> dict[str, dict[str, int]]:
    unreadable = {name: sum(sum(record.quarantined.values()) for record in there) for name, there in records.items()}
    items = database.table("SELECT reference, count(*) AS items FROM items GROUP BY reference ORDER BY min(first)").to_pylist()
    kinds = ", ".join(f"count(*) FILTER (match = '{kind}') AS \"{kind}\"" for kind in match.MATCHES)
    samples = "count(DISTINCT sample_id) FILTER (counted) AS samples"
    found = database.table(f"SELECT reference, {kinds}, {samples} FROM hits GROUP BY ALL").to_pylist()
    matched = {row.pop("reference"): row for row in found}
    counts = {row["reference"]: row["items"] for row in items}
    none = dict.fromkeys([*match.MATCHES, "samples"], 0)
    return {
        name: {"items": counts.get(name, 0), "unreadable": unreadable.get(name, 0)} | matched.get(name, none)
        for name in dict.fromkeys([*counts, *unreadable])
    }


def _require_readable(step: StepFolder, records: Mapping[str, Sequence[UnitRecord]], key: str) -> None:
    for name, there in records.items():
        if there and not any(record.rows_out for record in there):
            said = step.read_table("quarantine", [there[0].parts["quarantine"]])["message"]
            first = f" (the first: {said[0]})" if len(said) else ""
            count = sum(record.rows_in for record in there)
            raise ValueError(f"{key}.references: none of the {count:,} items of {name} can be read{first}; correct its input")
