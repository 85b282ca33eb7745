"""Decontamination, between inspection and scoring: edits that match a reference are listed, and dropped if the configuration says so.

In: the table ``inspected``, and the references (stages/contamination/compare.py). Out: the artifacts ``references``,
``unreadable_references`` and ``contamination`` (stages/contamination/match.py), and the rows that are left for scoring. A dropped
edit counts as gated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from stages.contamination import compare, match, references
from stages.contamination.compare import NAME, Planned
from stages.context import Context
from stages.datasets import readers as edits
from stages.engine import contracts, tables
from stages.engine.rundir import StepFolder
from stages.engine.tables import PLACE
from stages.filter import worker_counts
from stages.filter.config import FilterConfig
from stages.filter.inspection import Inspection, bit_of

KEY = "filter.contamination"


def check(
    context: Context, config: FilterConfig, step: StepFolder, inspected: Inspection, planned: Planned, model: Path
) -> tuple[Inspection, dict[str, Any]]:
    """Compare what is left after inspection with the references. Returns what is left after that, and a summary of JSON values."""
    settings = config.contamination
    known = compare.hashed(step, planned, KEY, cluster=context.cluster, workers=worker_counts.inspecting(config, context.cluster))
    training = references.of_training(model) if settings.training else None
    found = compare.compare(step, _left(step, inspected), known, settings, training)
    clean, marks = inspected.left.copy(), inspected.marks.copy()
    counted = np.flatnonzero(clean)[found.counted]
    marks[counted] |= bit_of(NAME)
    if settings.action == "drop":
        clean[counted] = False
    dropped = int(inspected.left.sum() - clean.sum())
    summary = compare.settings_of(settings) | {
        "training": "off" if not settings.training else "not named by the model" if training is None else "named by the model",
        "references": found.by_reference,
        "samples": found.samples,
        "dropped": dropped,
    }
    artifacts = inspected.artifacts | found.artifacts
    return replace(inspected, left=clean, marks=marks, artifacts=artifacts, gated=inspected.gated + dropped), summary


def matching(
    context: Context, config: FilterConfig, step: StepFolder, planned: Planned, model: Path
) -> Callable[[pa.Table], np.ndarray] | None:
    """A function that says which rows of an inspected table are dropped, bool [n]; None where contamination drops nothing."""
    settings = config.contamination
    if settings.action != "drop":
        return None
    known = compare.hashed(step, planned, KEY, cluster=context.cluster, workers=worker_counts.inspecting(config, context.cluster))
    training = references.of_training(model) if settings.training else None
    split = match.split(compare.items_of(known, training), settings.distance, settings.counts)

    def dropped(inspected: pa.Table) -> np.ndarray:
        found = np.zeros(inspected.num_rows, dtype=bool)
        for reference in split:
            hits = reference.matches(inspected)
            found[hits[PLACE].filter(hits["counted"]).to_numpy()] = True
        return found

    return dropped


def about(summary: Mapping[str, Any], samples: int) -> dict[str, Any]:
    """Entry for the index of a selection's shards: what was compared, and how many of its ``samples`` count as contaminated."""
    compared = {name: entry["items"] for name, entry in summary["references"].items()}
    return {NAME: {"action": summary["action"], "training": summary["training"], "items": compared, "samples": samples}}


def _left(step: StepFolder, inspected: Inspection) -> Iterator[pa.RecordBatch]:
    """Rows of ``inspected`` that are to be scored: neither copies nor dropped by a gate."""
    columns = ["sample_id", "position", "source_sha256", "source_phash", "instruction"]
    schema = pa.schema([contracts.INSPECTED.field(name) for name in columns])
    for batch in tables.batches([step.path / part.path for part in inspected.parts], schema):
        yield batch.filter(pa.array(inspected.left[edits.numbers_of(batch["position"])]))
