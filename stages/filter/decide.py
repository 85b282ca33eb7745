"""Run all gates: what they measure on one edit, and what they decide on all inspected edits.

A gate with the action ``flag`` counts and shows what it catches, one with ``drop`` also keeps it from being scored. Decisions are queries
out of core (stages/engine/tables.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from stages.engine import contracts
from stages.engine.tables import Tables
from stages.filter.gates.config import GATES, GatesConfig
from stages.filter.gates.gate import SEEN, Finding, GateConfig
from stages.filter.pair import Pair

REVISIONS = tuple(f"{column}/{gate.revision}" for gate in GATES.values() for column in gate.columns)
"""Measures with their revisions: part of the names of inspected units, so that a new measure inspects anew."""

DECIMALS = 5
QUANTILES = (0.05, 0.5, 0.95)
FOUND = {"value": "DOUBLE", "caught": "BOOLEAN", "threshold": "DOUBLE"}
"""What a gate says of an edit, with types of DuckDB."""
NUMBER = r"regexp_extract(position, '\[(\d+)\]$', 1)::BIGINT"
"""The number of an edit in the data set."""


def measure(pair: Pair) -> dict[str, float | int | None]:
    """What all gates measure on one edit, rounded: columns of the contract ``inspected``."""
    columns = {name: value for gate in GATES.values() if gate.measure for name, value in gate.measure(pair).items()}
    numbers = {name: None if value is None or math.isnan(value) else value for name, value in columns.items()}
    return {name: round(value, DECIMALS) if isinstance(value, float) else value for name, value in numbers.items()}


def read(database: Tables, config: GatesConfig) -> None:
    """Make the table ``edits`` of what the gates need of the rows ``inspected``, whatever columns no gate reads left out.

    Gates that look at one edit at a time decide here; their values and decisions are columns named after the gate.
    """
    active = {name: gate for name, gate in GATES.items() if _settings(config, name).action != "off"}
    columns = [f"{NUMBER} AS number", "sample_id", "row_id", "position"]
    columns += dict.fromkeys(column for gate in active.values() for column in gate.reads)
    columns += [
        f'({getattr(finding, what)})::{kind} AS "{name}.{what}"'
        for name, finding in _findings(config).items()
        for what, kind in FOUND.items()
    ]
    database.execute(f"CREATE OR REPLACE TABLE edits AS SELECT {', '.join(columns)} FROM inspected")


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
    spans = [*database.spans("number", "edits")]
    for place, name in enumerate(GATES):
        for there in spans:
            found = f"(SELECT number, value, threshold FROM caught WHERE gate = {place} AND {there})"
            ids = f"(SELECT number, sample_id FROM edits WHERE {there})"
            for batch in database.rows(f"SELECT sample_id, value, threshold FROM {found} JOIN {ids} USING (number) ORDER BY number"):
                about = {"gate": pa.repeat(name, len(batch)), "action": pa.repeat(_settings(config, name).action, len(batch))}
                columns = {column: batch[column] for column in batch.schema.names} | about
                yield pa.record_batch([columns[column] for column in contracts.GATED.names], names=contracts.GATED.names).cast(
                    contracts.GATED
                )


def dropped_alone(config: GatesConfig) -> str:
    """Whether a gate drops an inspected edit that looks at one edit at a time, as an expression. Gates that compare edits may drop more."""
    found = [finding.caught for name, finding in _findings(config).items() if _settings(config, name).action == "drop"]
    return " OR ".join(f"coalesce({caught}, FALSE)" for caught in found) or "FALSE"


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


def _findings(config: GatesConfig) -> dict[str, Finding]:
    """What gates find that look at one edit at a time, by gate, without those that are off."""
    active = {name: gate for name, gate in GATES.items() if _settings(config, name).action != "off"}
    return {name: gate.decide(_settings(config, name)) for name, gate in active.items() if gate.decide is not None}


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
