"""The sources of a run as hashes, so that they can be compared with references.

In: the artifact ``sources`` of the step generate, read by workers a few rows at a time. Out: tables of the contract ``references``, as the
artifact ``source_hashes``. A unit is a part of ``sources``, so a comparison with other references hashes no source again.
"""

from __future__ import annotations

from typing import Any

import pyarrow.parquet as pq

from reward.inputs.decoding import DECODER
from stages.contamination import references
from stages.engine import contracts
from stages.engine.ids import settings_hash
from stages.engine.rundir import StepFolder
from stages.engine.units import Unit, UnitOutput, Work

ARTIFACT = "source_hashes"
COLUMNS = ["source_id", "image", "instruction"]
BATCH_ROWS = 16
"""Rows in memory at the same time, images included."""


def units(generate: StepFolder) -> list[Unit]:
    """A unit per part of the sources."""
    parts = generate.require().artifacts["sources"]
    return [Unit(settings_hash(ARTIFACT, DECODER, part.sha256), str(generate.path / part.path), part.rows) for part in parts]


def make_work() -> Work:
    """The work of one unit: a row per source. Every image decodes, because generate decoded it."""

    def work(path: str) -> UnitOutput:
        rows: list[dict[str, Any]] = []
        for batch in pq.ParquetFile(path).iter_batches(batch_size=BATCH_ROWS, columns=COLUMNS):
            for source in batch.to_pylist():
                found = references.row("sources", source["source_id"], source["image"]["bytes"], source["instruction"])
                assert isinstance(found, dict), f"source {source['source_id']} is a source of the run and does not decode"
                rows.append(found)
        return UnitOutput({ARTIFACT: contracts.table(ARTIFACT, rows)}, len(rows), len(rows))

    return work
