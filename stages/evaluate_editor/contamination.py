"""How many benchmark items have an image that the run's reward model was trained on: then its selections know the benchmark.

Compared are perceptual hashes with those of all sources of the run's ratings. What a model that was trained elsewhere has seen is not
known here; the benchmark's own remarks say what is known of published ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from reward.inputs.decoding import decode
from reward.likeness import perceptual_hash
from stages.contamination import source_hashes
from stages.context import Context
from stages.engine import steps
from stages.engine.ids import settings_hash
from stages.engine.run_units import run_units
from stages.engine.rundir import Part, StepFolder
from stages.evaluate_editor.config import EvaluateEditorConfig
from stages.evaluate_editor.systems import COPY

DISTANCE = 4
"""Bits of 64 in which the hashes of near duplicates may differ."""


def known_sources(context: Context, config: EvaluateEditorConfig) -> dict[str, str]:
    """Hash of the sources that items are compared with, as an input of the step; empty where none are."""
    index = context.run.step(steps.GENERATE).index() if config.items.may_be_known else None
    return {} if index is None else {"sources of ratings": settings_hash([part.sha256 for part in index.artifacts["sources"]])}


def seen_items(context: Context, folder: StepFolder, config: EvaluateEditorConfig, edits: Sequence[Part]) -> dict[str, Any]:
    """``{"items", "seen", "sources"}``; empty where the run has no sources, or the items cannot be among them.

    edits: parts of the table ``benchmark_edits``.
    """
    if not known_sources(context, config):
        return {}
    units = source_hashes.units(context.run.step(steps.GENERATE))
    done = run_units(
        folder, units, source_hashes.make_work, cluster=context.cluster, workers=config.workers, phase="hash sources", rows_are="sources"
    )
    known = folder.read_table(source_hashes.ARTIFACT, [record.parts[source_hashes.ARTIFACT] for record in done.records])
    hashes: dict[str, int] = {}
    for part in edits:
        table = folder.read_table("benchmark_edits", [part], ["item_id", "arm", "image"])
        for row in table.filter(np.array([name == COPY for name in table["arm"].to_pylist()])).to_pylist():
            if row["image"] is not None and row["item_id"] not in hashes:
                hashes[row["item_id"]] = perceptual_hash(decode(row["image"]["bytes"], what=f"the source of item {row['item_id']}"))
    sources = known["source_phash"].to_numpy()
    seen = sum(bool((np.bitwise_count(sources ^ np.uint64(bits)) <= DISTANCE).any()) for bits in hashes.values())
    return {"items": len(hashes), "seen": seen, "sources": known.num_rows}
