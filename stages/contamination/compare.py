"""Comparison of sources with the references of a configuration: the references are hashed by workers, then matches are looked up.

In: the planned units of the references, and the sources as hashes. Out: hits (stages/contamination/match.py), and how many items of each
reference were compared and matched. The driver keeps the hashes of all references in memory: about 150 bytes per item;
of the sources it holds some at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.contamination import match, references
from stages.contamination.config import Comparison
from stages.engine import contracts, storage, tables
from stages.engine.cluster import Cluster
from stages.engine.ids import settings_hash
from stages.engine.run_units import run_units
from stages.engine.rundir import Part, StepFolder
from stages.engine.tables import PLACE, Tables
from stages.engine.units import Unit, UnitRecord, publish_batches

NAME = "contamination"
HITS = pa.schema([("number", pa.int64()), ("hit", pa.int64()), *match.FOUND])
"""Matches in the order of a reference's number and their own."""
SOURCES = 64 * match.PART
"""Sources in memory at the same time."""
MATCHES = (match.EXACT, match.NEAR, match.INSTRUCTION)

Planned = Mapping[str, Sequence[Unit]]
"""Units of the references by name."""


@dataclass(frozen=True)
class References:
    """References as hashes. items: rows of that contract; records: of the units of each reference."""

    items: pa.Table
    records: Mapping[str, Sequence[UnitRecord]]
    artifacts: dict[str, list[Part]]


@dataclass(frozen=True)
class Compared:
    """counted: which sources count as contaminated, bool [sources]; samples: how many different ids these have; artifacts: those to list.

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
    items = step.read_table("references", [record.parts["references"] for record in done.records])
    artifacts = {
        "references": done.artifacts().get("references", []),
        "unreadable_references": [record.parts["quarantine"] for record in done.records if record.quarantined],
    }
    return References(items, records, artifacts)


def compare(
    step: StepFolder, sources: Iterable[pa.RecordBatch], known: References, config: Comparison, training: pa.Table | None = None
) -> Compared:
    """Matches of sources with the references, and with those that a model was trained on where ``training`` has them.

    sources: columns ``sample_id``, ``source_sha256``, ``source_phash`` and ``instruction`` as in ``inspected``; more than fit in memory.
    """
    items = items_of(known, training)
    split = match.split(items, config.distance, config.counts)
    compared = 0

    def hits() -> Iterator[pa.RecordBatch]:
        nonlocal compared
        found = 0
        for some in storage.even(sources, SOURCES):
            for number, reference in enumerate(split):
                table = reference.matches(some)
                places = pc.add(table[PLACE], compared)
                order = [pa.array(np.full(len(table), number)), pa.array(np.arange(found, found + len(table)))]
                found += len(table)
                yield from pa.table([*order, places, *table.columns[1:]], schema=HITS).to_batches()
            compared += len(some)

    with tables.opened(step.path) as database:
        database.keep("hits", hits(), HITS)
        in_order = database.rows(f"SELECT {', '.join(contracts.CONTAMINATION.names)} FROM hits ORDER BY number, hit")
        parts = publish_batches(step, NAME, (batch.cast(contracts.CONTAMINATION) for batch in in_order))
        counted = np.zeros(compared, dtype=bool)
        for batch in database.rows(f"SELECT {PLACE} FROM hits WHERE counted"):
            counted[batch[PLACE].to_numpy()] = True
        samples = database.number("SELECT count(DISTINCT sample_id) FROM hits WHERE counted")
        by_reference = _by_reference(database, items, known.records)
    return Compared(counted, samples, {**known.artifacts, NAME: parts}, by_reference)


def items_of(known: References, training: pa.Table | None) -> pa.Table:
    """The items of all references, and before them those that a model was trained on where ``training`` has them."""
    return pa.concat_tables([training, known.items]) if training is not None else known.items


def settings_of(config: Comparison) -> dict[str, Any]:
    """What a summary says of the settings."""
    return {"action": config.action, "distance": config.distance, "counts": config.counts}


def _by_reference(database: Tables, items: pa.Table, records: Mapping[str, Sequence[UnitRecord]]) -> dict[str, dict[str, int]]:
    unreadable = {name: sum(sum(record.quarantined.values()) for record in there) for name, there in records.items()}
    counts = Counter(items["reference"].to_pylist())
    kinds = database.table("SELECT reference, match, count(*) AS hits FROM hits GROUP BY ALL").to_pylist()
    matched = {(row["reference"], row["match"]): row["hits"] for row in kinds}
    samples = database.table("SELECT reference, count(DISTINCT sample_id) AS samples FROM hits WHERE counted GROUP BY ALL").to_pylist()
    known = {row["reference"]: row["samples"] for row in samples}
    return {
        name: {"items": counts[name], "unreadable": unreadable.get(name, 0)}
        | {kind: matched.get((name, kind), 0) for kind in MATCHES}
        | {"samples": known.get(name, 0)}
        for name in dict.fromkeys([*counts, *unreadable])
    }


def _require_readable(step: StepFolder, records: Mapping[str, Sequence[UnitRecord]], key: str) -> None:
    for name, there in records.items():
        if there and not any(record.rows_out for record in there):
            said = step.read_table("quarantine", [there[0].parts["quarantine"]])["message"]
            first = f" (the first: {said[0]})" if len(said) else ""
            count = sum(record.rows_in for record in there)
            raise ValueError(f"{key}.references: none of the {count:,} items of {name} can be read{first}; correct its input")
