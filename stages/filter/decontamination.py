"""Decontamination, between inspection and scoring: edits that match a reference are listed, and dropped if the configuration says so.

In: the table ``inspected``, and the references as hashes (stages/contamination/references.py). Out: the artifacts ``references``,
``unreadable_references`` and ``contamination`` (stages/contamination/match.py), and the slices that are left for scoring. A dropped
edit counts as gated. The driver keeps the hashes of all references in memory: about 150 bytes per item.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.contamination import match as contamination
from stages.contamination import references
from stages.contamination.config import ContaminationConfig
from stages.context import Context
from stages.datasets import readers as edits
from stages.engine.ids import settings_hash
from stages.engine.run_units import run_units
from stages.engine.rundir import StepFolder
from stages.engine.units import Unit, UnitRecord, publish_table
from stages.filter.config import FilterConfig
from stages.filter.inspection import Inspection, rows_of

NAME = "contamination"
MATCHES = (contamination.EXACT, contamination.NEAR, contamination.INSTRUCTION)


def units(config: ContaminationConfig) -> dict[str, list[Unit]]:
    """Units of the configured references by name."""
    return {reference.name: references.units(reference) for reference in config.references}


def inputs(planned: Mapping[str, Sequence[Unit]]) -> dict[str, str]:
    """Fingerprint of each reference."""
    return {f"reference {name}": settings_hash([unit.key for unit in units]) for name, units in planned.items()}


def check(
    context: Context, config: FilterConfig, step: StepFolder, inspected: Inspection, planned: Mapping[str, Sequence[Unit]], model: Path
) -> tuple[Inspection, dict[str, Any]]:
    """Compare what is left after inspection with the references. Returns what is left after that, and a summary of JSON values."""
    settings = config.contamination
    units = [unit for there in planned.values() for unit in there]
    done = run_units(step, units, references.make_work, cluster=context.cluster, workers=config.inspect_workers, rows_are="reference items")
    logged = iter(done.records)
    records = {name: [next(logged) for _ in there] for name, there in planned.items()}
    _require_readable(step, records)
    training = references.of_training(model) if settings.training else None
    items = step.read_table("references", [record.parts["references"] for record in done.records])
    items = pa.concat_tables([training, items]) if training is not None else items
    left = _left(step, inspected)
    hits = contamination.find(left, items, distance=settings.distance, counts=settings.counts)
    ids = contamination.counted(hits)
    dropped = left.filter(pc.is_in(left["sample_id"], value_set=ids.combine_chunks())) if settings.action == "drop" else left[:0]
    summary = {
        "action": settings.action,
        "distance": settings.distance,
        "counts": settings.counts,
        "training": "off" if not settings.training else "not named by the model" if training is None else "named by the model",
        "references": _by_reference(hits, items, records),
        "samples": len(ids),
        "dropped": dropped.num_rows,
    }
    merged = {"references": done.artifacts().get("references", [])}
    merged["unreadable_references"] = [record.parts["quarantine"] for record in done.records if record.quarantined]
    merged[NAME] = publish_table(step, NAME, hits)
    left_over = replace(
        inspected,
        kept=rows_of(inspected.kept, np.setdiff1d(inspected.numbers, edits.numbers_of(dropped["position"]))),
        artifacts=inspected.artifacts | merged,
        gated=inspected.gated + dropped.num_rows,
    )
    return left_over, summary


def about(summary: Mapping[str, Any], hits: pa.Table, selection: pa.Table) -> dict[str, Any]:
    """Entry for the index of a selection's shards: what was compared, and how many of its samples count as contaminated."""
    known = pc.is_in(selection["sample_id"], value_set=contamination.counted(hits).combine_chunks())
    compared = {name: entry["items"] for name, entry in summary["references"].items()}
    return {NAME: {"action": summary["action"], "training": summary["training"], "items": compared, "samples": pc.sum(known).as_py() or 0}}


def _left(step: StepFolder, inspected: Inspection) -> pa.Table:
    """Rows of ``inspected`` that are to be scored: neither copies nor dropped by a gate."""
    columns = ["sample_id", "position", "source_sha256", "source_phash", "instruction"]
    table = step.read_table("inspected", inspected.artifacts["inspected"], columns)
    return table.filter(pa.array(np.isin(edits.numbers_of(table["position"]), inspected.numbers)))


def _by_reference(hits: pa.Table, items: pa.Table, records: Mapping[str, Sequence[UnitRecord]]) -> dict[str, dict[str, int]]:
    """Per reference: its items, those that could not be read, edits by kind of match, edits that count."""
    unreadable = {name: sum(sum(record.quarantined.values()) for record in there) for name, there in records.items()}
    counts = Counter(items["reference"].to_pylist())
    matched = Counter(zip(hits["reference"].to_pylist(), hits["match"].to_pylist(), strict=True))
    samples = hits.filter(hits["counted"]).group_by("reference").aggregate([("sample_id", "count_distinct")]).to_pylist()
    known = {row["reference"]: row["sample_id_count_distinct"] for row in samples}
    return {
        name: {"items": counts[name], "unreadable": unreadable.get(name, 0)}
        | {match: matched[name, match] for match in MATCHES}
        | {"samples": known.get(name, 0)}
        for name in dict.fromkeys([*counts, *unreadable])
    }


def _require_readable(step: StepFolder, records: Mapping[str, Sequence[UnitRecord]]) -> None:
    """Raises ``ValueError`` for a reference of which nothing can be read: a comparison with it would wrongly report no match."""
    for name, there in records.items():
        if there and not any(record.rows_out for record in there):
            said = step.read_table("quarantine", [there[0].parts["quarantine"]])["message"]
            first = f" (the first: {said[0]})" if len(said) else ""
            count = sum(record.rows_in for record in there)
            raise ValueError(
                f"filter.contamination.references: none of the {count:,} items of {name} can be read{first}; correct its input"
            )
