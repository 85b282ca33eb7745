"""The tables of the step generate in this process, without Ray: as its workers make them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from stages.config import FlowConfig
from stages.datasets import readers
from stages.engine import storage
from stages.engine.units import Unit, UnitOutput
from stages.generate import candidate_plan, draw
from stages.generate.edit_task import EditTask
from stages.generate.edits import EditWork
from stages.generate.sources import decide, make_reading, make_writing, unit_key


def sources_here(flow: FlowConfig, unit_rows: int = 1000) -> list[UnitOutput]:
    """What the units of sources make, with the rows that reading them set aside, in ``quarantine`` of each; repeated ones in the last."""
    assert flow.generate is not None and flow.generate.sources is not None
    config = flow.generate.sources
    pieces = readers.plan(config, seed=flow.seed, world=flow.world, unit_rows=unit_rows, key="generate.sources", edited=False)
    reading = [Unit(unit_key(piece), piece, len(piece.rows)) for piece in pieces]
    read = [make_reading()(piece) for piece in pieces]
    plan = decide(reading, [output.tables["source_rows"].to_pylist() for output in read], flow.generate)
    written = [make_writing()(unit.payload) for unit in plan.writing]
    assert len(written) == len(read), "every slice has a source"
    aside = [output.quarantine for output in read]
    aside[-1] = [*aside[-1], *plan.repeated]
    return [replace(output, rows_in=len(piece.rows), quarantine=rows) for output, piece, rows in zip(written, pieces, aside, strict=True)]


def candidates_here(flow: FlowConfig, sources: pa.Table, folder: Path) -> list[pa.Table]:
    """The candidates of all editors in their order. ``folder``: a new one."""
    assert flow.generate is not None
    storage.publish_bytes(folder / "sources.parquet", storage.table_bytes(sources))
    tables = []
    for number, editor in enumerate(candidate_plan.planned(flow)):
        rows = sources.num_rows * editor.count
        task = EditTask(str(folder / "sources.parquet"), rows, str(folder / f"journal-{number}"), flow.generate.failures.seconds)
        tables.append(EditWork(flow, number)(task).tables["candidates"])
    return tables


def drawn_here(flow: FlowConfig, candidates: pa.Table) -> pa.Table:
    """The draw for annotation."""
    assert flow.generate is not None
    return draw.table(draw.draw(draw.sound(candidates), flow.generate.annotate, flow.seed))
