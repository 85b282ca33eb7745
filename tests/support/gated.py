"""What gates decide on a table of inspected edits that fits in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pyarrow as pa

from stages.engine import contracts, tables
from stages.engine.tables import Tables
from stages.filter import decide, inspection
from stages.filter.gates.config import GATES, GatesConfig

ALL_OFF = {name: {"action": "off"} for name in GATES}


class Gated(NamedTuple):
    """Rows of ``gated``; which edits are dropped and which are copies, by their places; the summary of each gate."""

    table: pa.Table
    dropped: list[bool]
    copies: list[dict[str, Any]]
    summary: dict[str, dict[str, Any]]


@contextmanager
def database() -> Iterator[Tables]:
    with tempfile.TemporaryDirectory() as folder, tables.opened(folder) as opened:
        yield opened


def gated(opened: Tables, table: pa.Table, config: GatesConfig) -> Gated:
    """The rows count as those of a data set in their order, whatever their positions."""
    table = with_places(table)
    opened.keep("inspected", table.to_batches(), table.schema)
    decide.read(opened, config)
    inspection.find_copies(opened)
    copies = pa.Table.from_batches(inspection.quarantined_copies(opened), contracts.QUARANTINE).to_pylist()
    summary = decide.decide(opened, config)
    found = pa.Table.from_batches(decide.gated(opened, config), contracts.GATED)
    gone = opened.table("SELECT number FROM gone ANTI JOIN copies USING (number)")["number"].to_pylist()
    return Gated(found, [number in gone for number in range(len(table))], copies, summary)


def with_places(table: pa.Table) -> pa.Table:
    """The rows with positions of a data set in their order."""
    places = pa.array([f"mine.jsonl[{number}]" for number in range(len(table))], pa.string())
    return table.set_column(table.schema.get_field_index("position"), "position", places)
