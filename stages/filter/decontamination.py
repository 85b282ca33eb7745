"""Decontamination, between inspection and scoring: edits that match a reference are listed, and dropped if the configuration says so.

In: the table ``inspected``, and the references (stages/contamination/compare.py). Out: the artifacts ``references``,
``unreadable_references`` and ``contamination`` (stages/contamination/match.py), and the rows that are left for scoring. A dropped
edit counts as gated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from stages.contamination import compare, match
from stages.contamination.compare import NAME, Planned
from stages.contamination.config import Comparison
from stages.context import Context
from stages.datasets import readers as edits
from stages.engine import contracts, tables
from stages.engine.rundir import StepFolder
from stages.engine.tables import Tables
from stages.filter import worker_counts
from stages.filter.config import FilterConfig
from stages.filter.inspection import Inspection, bit_of

KEY = "filter.contamination"


def check(
    context: Context, config: FilterConfig, step: StepFolder, inspected: Inspection, planned: Planned, training: Path | None
) -> tuple[Inspection, dict[str, Any]]:
    """Compare what is left after inspection with the references. Returns what is left after that, and a summary of JSON values.

    training: the reward model's record of its training, where that counts.
    """
    settings = config.contamination
    known = _known(context, config, step, planned)
    found = compare.compare(step, _left(step, inspected), known, settings, training)
    clean, marks = inspected.left.copy(), inspected.marks.copy()
    marks[found.counted] |= bit_of(NAME)
    if settings.action == "drop":
        clean[found.counted] = False
    dropped = int(inspected.left.sum() - clean.sum())
    summary = compare.settings_of(settings) | {
        "training": "off" if not settings.training else "not named by the model" if training is None else "named by the model",
        "references": found.by_reference,
        "samples": found.samples,
        "dropped": dropped,
    }
    artifacts = inspected.artifacts | found.artifacts
    return replace(inspected, left=clean, marks=marks, artifacts=artifacts, gated=inspected.gated + dropped), summary


def dropping(
    database: Tables, context: Context, config: FilterConfig, step: StepFolder, planned: Planned, training: Path | None
) -> Comparison | None:
    """The comparison where it drops edits, after its references were read into the database; else None."""
    settings = config.contamination
    if settings.action != "drop":
        return None
    compare.read(database, _known(context, config, step, planned), training)
    return settings


def about(summary: Mapping[str, Any], samples: int) -> dict[str, Any]:
    """Entry for the index of a selection's shards: what was compared, and how many of its ``samples`` count as contaminated."""
    compared = {name: entry["items"] for name, entry in summary["references"].items()}
    return {NAME: {"action": summary["action"], "training": summary["training"], "items": compared, "samples": samples}}


def _known(context: Context, config: FilterConfig, step: StepFolder, planned: Planned) -> compare.References:
    return compare.hashed(step, planned, KEY, cluster=context.cluster, workers=worker_counts.inspecting(config, context.cluster))


def _left(step: StepFolder, inspected: Inspection) -> Iterator[pa.RecordBatch]:
    """Rows of ``inspected`` that are to be scored: neither copies nor dropped by a gate, as rows of ``match.SOURCES``."""
    columns = ["position", *match.COMPARED]
    schema = pa.schema([contracts.INSPECTED.field(name) for name in columns])
    for batch in tables.batches([step.path / part.path for part in inspected.parts], schema):
        numbers = edits.numbers_of(batch["position"])
        rows = pa.record_batch([pa.array(numbers), *batch.columns[1:]], schema=match.SOURCES)
        yield rows.filter(pa.array(inspected.left[numbers]))
