"""Benchmark contamination of the training split, known before anything is trained.

In: the sources of the training split with complete groups, and references (stages/contamination/compare.py). Out: the artifacts
``source_hashes``, ``references``, ``unreadable_references`` and ``contamination``, whose ``sample_id`` is a source's id; and the sources to
leave out. The comparison is here, not in generate, because other references then cost no new candidates, and ratings of the candidates stay
valid; and not in train-reward, because a source that is left out must have no pairs.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from stages.contamination import compare, match, source_hashes
from stages.contamination.compare import Planned
from stages.contamination.config import Comparison
from stages.context import Context
from stages.engine import steps
from stages.engine.contracts import Quarantined
from stages.engine.run_units import run_units
from stages.engine.rundir import Part, StepFolder
from stages.engine.tables import numbered

KEY = "preferences.contamination"


class Found(NamedTuple):
    """artifacts: tables in parts; dropped: what is left out, by source; summary: plain values, as the filter's."""

    artifacts: dict[str, list[Part]]
    dropped: dict[str, Quarantined]
    summary: dict[str, Any]


def check(context: Context, step: StepFolder, config: Comparison, planned: Planned, training: Set[str], *, workers: int) -> Found:
    """Compare the sources with the ids ``training`` with the references."""
    known = compare.hashed(step, planned, KEY, cluster=context.cluster, workers=workers)
    units = source_hashes.units(context.run.step(steps.GENERATE))
    done = run_units(
        step, units, source_hashes.make_work, cluster=context.cluster, workers=workers, phase="hash sources", rows_are="sources"
    )
    table = step.read_table(source_hashes.ARTIFACT, [record.parts[source_hashes.ARTIFACT] for record in done.records])
    table = table.filter(pc.is_in(table["item"], value_set=pa.array(sorted(training), pa.string())))
    sources = table.drop_columns("reference").rename_columns(match.COMPARED)
    found = compare.compare(step, numbered(sources.to_batches()), known, config)
    dropped: dict[str, Quarantined] = {}
    if config.action == "drop":
        hits = step.read_table(compare.NAME, found.artifacts[compare.NAME])
        for hit in hits.filter(hits["counted"]).to_pylist():
            source, message = hit["sample_id"], f"its source is that of item {hit['item']} of {hit['reference']} ({hit['match']})"
            dropped.setdefault(source, Quarantined(source, f"group {source}", compare.NAME, message))
    counts = {"sources": table.num_rows, "samples": found.samples, "dropped": len(dropped)}
    artifacts = {source_hashes.ARTIFACT: done.artifacts().get(source_hashes.ARTIFACT, [])} | found.artifacts
    summary = compare.settings_of(config) | {"training": "off", "references": found.by_reference} | counts
    return Found({name: parts for name, parts in artifacts.items() if parts}, dropped, summary)
