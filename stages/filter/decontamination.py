"""Decontamination, between inspection and scoring: edits that match a reference are listed, and dropped if the configuration says so.

In: the table ``inspected``, and the references (stages/contamination/compare.py). Out: the artifacts ``references``,
``unreadable_references`` and ``contamination`` (stages/contamination/match.py), and the rows that are left for scoring. A dropped
edit counts as gated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.contamination import compare, match, references
from stages.contamination.compare import NAME, Planned
from stages.context import Context
from stages.datasets import readers as edits
from stages.engine.rundir import StepFolder
from stages.filter import worker_counts
from stages.filter.config import FilterConfig
from stages.filter.inspection import Inspection

KEY = "filter.contamination"


def check(
    context: Context, config: FilterConfig, step: StepFolder, inspected: Inspection, planned: Planned, model: Path
) -> tuple[Inspection, dict[str, Any]]:
    """Compare what is left after inspection with the references. Returns what is left after that, and a summary of JSON values."""
    settings = config.contamination
    known = compare.hashed(step, planned, KEY, cluster=context.cluster, workers=worker_counts.inspecting(config, context.cluster))
    training = references.of_training(model) if settings.training else None
    left = _left(step, inspected)
    found = compare.compare(step, left, known, settings, training)
    dropped = left.filter(pc.is_in(left["sample_id"], value_set=found.counted.combine_chunks())) if settings.action == "drop" else left[:0]
    summary = compare.settings_of(settings) | {
        "training": "off" if not settings.training else "not named by the model" if training is None else "named by the model",
        "references": found.by_reference,
        "samples": len(found.counted),
        "dropped": dropped.num_rows,
    }
    clean = ~np.isin(inspected.numbers, edits.numbers_of(dropped["position"]))
    left_over = replace(
        inspected,
        numbers=inspected.numbers[clean],
        sample_ids=inspected.sample_ids.filter(pa.array(clean)),
        artifacts=inspected.artifacts | found.artifacts,
        gated=inspected.gated + dropped.num_rows,
    )
    return left_over, summary


def matching(
    context: Context, config: FilterConfig, step: StepFolder, planned: Planned, model: Path
) -> Callable[[pa.Table], np.ndarray] | None:
    """A function that says which rows of an inspected table are dropped, bool [n]; None where contamination drops nothing."""
    settings = config.contamination
    if settings.action != "drop":
        return None
    known = compare.hashed(step, planned, KEY, cluster=context.cluster, workers=worker_counts.inspecting(config, context.cluster))
    training = references.of_training(model) if settings.training else None
    items = pa.concat_tables([training, known.items]) if training is not None else known.items

    def dropped(inspected: pa.Table) -> np.ndarray:
        hits = match.find(inspected, items, distance=settings.distance, counts=settings.counts)
        return pc.is_in(inspected["sample_id"], value_set=match.counted(hits).combine_chunks()).to_numpy()

    return dropped


def about(summary: Mapping[str, Any], hits: pa.Table, selection: pa.Table) -> dict[str, Any]:
    """Entry for the index of a selection's shards: what was compared, and how many of its samples count as contaminated."""
    known = pc.is_in(selection["sample_id"], value_set=match.counted(hits).combine_chunks())
    compared = {name: entry["items"] for name, entry in summary["references"].items()}
    return {NAME: {"action": summary["action"], "training": summary["training"], "items": compared, "samples": pc.sum(known).as_py() or 0}}


def _left(step: StepFolder, inspected: Inspection) -> pa.Table:
    """Rows of ``inspected`` that are to be scored: neither copies nor dropped by a gate."""
    columns = ["sample_id", "position", "source_sha256", "source_phash", "instruction"]
    table = step.read_table("inspected", inspected.artifacts["inspected"], columns)
    return table.filter(pa.array(np.isin(edits.numbers_of(table["position"]), inspected.numbers)))
