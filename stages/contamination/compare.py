"""Comparison of sources with the references of a configuration: the references are hashed by workers, then matches are looked up.

In: the planned units of the references, and the sources as hashes. Out: hits (stages/contamination/match.py), and how many items of each
reference were compared and matched. The driver keeps the hashes of all references in memory: about 150 bytes per item.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from stages.contamination import match, references
from stages.contamination.config import Comparison
from stages.engine.cluster import Cluster
from stages.engine.ids import settings_hash
from stages.engine.run_units import run_units
from stages.engine.rundir import Part, StepFolder
from stages.engine.units import Unit, UnitRecord, publish_table

NAME = "contamination"
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
    """hits: rows of the contract ``contamination``; counted: ids of the sources that count as contaminated; artifacts: those to list.

    by_reference: its items, those that could not be read, sources by kind of match, sources that count.
    """

    hits: pa.Table
    counted: pa.ChunkedArray
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


def compare(step: StepFolder, sources: pa.Table, known: References, config: Comparison, training: pa.Table | None = None) -> Compared:
    """Matches of sources with the references, and with those that a model was trained on where ``training`` has them.

    sources: columns ``sample_id``, ``source_sha256``, ``source_phash`` and ``instruction`` as in ``inspected``.
    """
    items = pa.concat_tables([training, known.items]) if training is not None else known.items
    hits = match.find(sources, items, distance=config.distance, counts=config.counts)
    artifacts = {**known.artifacts, NAME: publish_table(step, NAME, hits)}
    return Compared(hits, match.counted(hits), artifacts, _by_reference(hits, items, known.records))


def settings_of(config: Comparison) -> dict[str, Any]:
    """What a summary says of the settings."""
    return {"action": config.action, "distance": config.distance, "counts": config.counts}


def _by_reference(hits: pa.Table, items: pa.Table, records: Mapping[str, Sequence[UnitRecord]]) -> dict[str, dict[str, int]]:
    unreadable = {name: sum(sum(record.quarantined.values()) for record in there) for name, there in records.items()}
    counts = Counter(items["reference"].to_pylist())
    matched = Counter(zip(hits["reference"].to_pylist(), hits["match"].to_pylist(), strict=True))
    samples = hits.filter(hits["counted"]).group_by("reference").aggregate([("sample_id", "count_distinct")]).to_pylist()
    known = {row["reference"]: row["sample_id_count_distinct"] for row in samples}
    return {
        name: {"items": counts[name], "unreadable": unreadable.get(name, 0)}
        | {kind: matched[name, kind] for kind in MATCHES}
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
