"""Run all gates: what they measure on one edit, and what they decide on all inspected edits.

A gate with the action ``flag`` counts and shows what it catches, one with ``drop`` also keeps it from being scored. The driver holds some
edits at a time; what needs all of them is a query out of core (stages/engine/tables.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from stages.datasets.slices import numbers_of
from stages.engine import contracts
from stages.engine.tables import Tables
from stages.filter.gates.config import GATES, GatesConfig
from stages.filter.gates.gate import SEEN, Finding, GateConfig
from stages.filter.pair import Pair
from stages.filter.schemas import INSPECTED

REVISIONS = tuple(f"{column}/{gate.revision}" for gate in GATES.values() for column in gate.columns)
"""Measures with their revisions: part of the names of inspected units, so that a new measure inspects anew."""

TOGETHER = 2_000_000
"""Numbers of edits whose ids are joined at a time: a join of all, with its rows in order, would need more memory than there is."""
DECIMALS = 5
QUANTILES = (0.05, 0.5, 0.95)
FOUND = {"value": pa.float64(), "caught": pa.bool_(), "threshold": pa.float64()}


def measure(pair: Pair) -> dict[str, float | int | None]:
    """What all gates measure on one edit, rounded: columns of the contract ``inspected``."""
    columns = {name: value for gate in GATES.values() if gate.measure for name, value in gate.measure(pair).items()}
    return {name: round(value, DECIMALS) if isinstance(value, float) else value for name, value in columns.items()}


def read(database: Tables, inspected: Iterable[pa.RecordBatch], config: GatesConfig) -> None:
    """Keep the table ``edits`` of what the gates need: batches of the schema :data:`INSPECTED`, whatever columns no gate reads left out.

    Gates that look at one edit at a time decide here; their values and decisions are columns named after the gate.
    """
    active = {name: gate for name, gate in GATES.items() if _settings(config, name).action != "off"}
    compared = [*dict.fromkeys(column for gate in active.values() for column in gate.reads)]
    alone = [name for name, gate in active.items() if not gate.compares]
    columns = [pa.field("number", pa.int64()), *(contracts.INSPECTED.field(name) for name in ("sample_id", "row_id", "position"))]
    columns += [pa.field(name, pa.int64() if name.endswith("_phash") else INSPECTED.field(name).type) for name in compared]
    columns += [pa.field(f"{name}.{what}", kind) for name in alone for what, kind in FOUND.items()]
    schema = pa.schema(columns)

    def rows() -> Iterator[pa.RecordBatch]:
        for batch in inspected:
            table = pa.table(batch)
            made = [pa.array(numbers_of(table["position"])), *(batch[name] for name in ("sample_id", "row_id", "position"))]
            made += [batch[name].view(pa.int64()) if name.endswith("_phash") else batch[name] for name in compared]
            for name in alone:
                finding = _decide(name, table, config)
                threshold = np.broadcast_to(np.float64(finding.threshold), len(batch))
                made += [pa.array(finding.values, pa.float64(), from_pandas=True), pa.array(finding.caught), pa.array(threshold)]
            yield pa.record_batch(made, schema=schema)

    database.keep("edits", rows(), schema)


def decide(database: Tables, config: GatesConfig) -> dict[str, dict[str, Any]]:
    """Apply the gates to the table ``edits`` without those in the table ``copies`` (column ``number``).

    What they dropped is the table ``gone`` then, copies included, and what they caught ``caught``, for :func:`gated`. Returns a summary
    per gate, JSON-able.
    """
    database.execute("CREATE OR REPLACE TABLE gone AS SELECT number FROM copies")
    database.execute(f"CREATE OR REPLACE VIEW {SEEN} AS SELECT edits.* FROM edits ANTI JOIN gone USING (number)")
    database.execute("CREATE OR REPLACE TABLE caught (gate SMALLINT, number BIGINT, value DOUBLE, threshold DOUBLE)")
    summary: dict[str, dict[str, Any]] = {}
    for place, (name, gate) in enumerate(GATES.items()):
        settings = _settings(config, name)
        if settings.action == "off":
            summary[name] = {"action": "off"}
            continue
        if gate.compare:
            database.execute(f"CREATE OR REPLACE TABLE compared AS {gate.compare(database, settings)}")
            decided = "compared"
        else:
            own = ", ".join(f'"{name}.{what}" AS {what}' for what in FOUND)
            decided = f"(SELECT number, {own} FROM edits ANTI JOIN copies USING (number))"
        database.execute(f"INSERT INTO caught SELECT {place}, number, value, threshold FROM {decided} WHERE caught")
        before = database.number("SELECT count(*) FROM gone")
        if settings.action == "drop":
            database.execute(f"INSERT INTO gone SELECT number FROM caught ANTI JOIN gone USING (number) WHERE gate = {place}")
        summary[name] = _summary(database, decided, settings, database.number("SELECT count(*) FROM gone") - before)
    return summary


def gated(database: Tables, config: GatesConfig) -> Iterator[pa.RecordBatch]:
    """Rows of the contract ``gated`` that :func:`decide` found: one per gate and edit that it caught, in the order of both."""
    end = database.number("SELECT coalesce(max(number) + 1, 0) FROM edits")
    for place, name in enumerate(GATES):
        for first in range(0, end, TOGETHER):
            there = f"number >= {first} AND number < {first + TOGETHER}"
            found = f"(SELECT number, value, threshold FROM caught WHERE gate = {place} AND {there})"
            ids = f"(SELECT number, sample_id FROM edits WHERE {there})"
            for batch in database.rows(f"SELECT sample_id, value, threshold FROM {found} JOIN {ids} USING (number) ORDER BY number"):
                about = {"gate": pa.repeat(name, len(batch)), "action": pa.repeat(_settings(config, name).action, len(batch))}
                columns = {column: batch[column] for column in batch.schema.names} | about
                yield pa.record_batch([columns[column] for column in contracts.GATED.names], names=contracts.GATED.names).cast(
                    contracts.GATED
                )


def decide_rows(inspected: pa.Table, config: GatesConfig) -> np.ndarray:
    """Which edits a gate drops that looks at one edit at a time: bool [n], for a table of the schema :data:`INSPECTED`. Gates that
    compare edits may drop more."""
    dropped = np.zeros(inspected.num_rows, dtype=bool)
    for name, gate in GATES.items():
        if _settings(config, name).action == "drop" and not gate.compares:
            dropped |= _decide(name, inspected, config).caught
    return dropped


def inputs(config: GatesConfig) -> dict[str, str]:
    """Hashes of what the gates read beside the data set. Raises ``ValueError`` for a file that is not there."""
    found: dict[str, str] = {}
    for name, gate in GATES.items():
        settings: GateConfig = getattr(config, name)
        if gate.files is not None and settings.action != "off":
            found |= gate.files(settings)
    return found


def _settings(config: GatesConfig, name: str) -> GateConfig:
    return getattr(config, name)


def _decide(name: str, inspected: pa.Table, config: GatesConfig) -> Finding:
    decided = GATES[name].decide
    assert decided is not None, "a gate decides alone or compares"
    return decided(inspected, _settings(config, name))


def _summary(database: Tables, decided: str, settings: GateConfig, dropped: int) -> dict[str, Any]:
    """``measured``: edits with a value; ``dropped``: those that no gate before dropped, so that these add up; quantiles of the value."""
    return {
        "action": settings.action,
        "settings": settings.model_dump(mode="json", exclude={"action"}),
        "measured": database.number(f"SELECT count(value) FROM {decided}"),
        "caught": database.number(f"SELECT count(*) FROM {decided} WHERE caught"),
        "dropped": dropped,
        "quantiles": [round(value, DECIMALS) for value in database.quantiles("value", decided, QUANTILES)] or None,
    }
