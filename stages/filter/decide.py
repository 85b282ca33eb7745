"""Run all gates: what they measure on one edit, and what they decide on the table of all inspected edits.

A gate with the action ``flag`` counts and shows what it catches, one with ``drop`` also keeps it from being scored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from stages.engine import contracts
from stages.filter.gates.config import GATES, GatesConfig
from stages.filter.gates.gate import Finding, Gate, GateConfig
from stages.filter.pair import Pair

FIRST = (
    "largest_change", "background_change", "background_match", "swap_evidence", "fine_detail", "latin_share", "han_share", "asked_words",
)  # fmt: skip
"""Measures of the first version of the table ``inspected``, in its order; later ones follow in the order of the gates."""


def _measured() -> dict[str, tuple[str, Gate]]:
    """Per column of the gates its Arrow type and its gate, in the order of the table ``inspected``."""
    found = {column: (kind, gate) for gate in GATES.values() for column, kind in gate.columns.items()}
    return {column: found[column] for column in sorted(found, key=lambda column: FIRST.index(column) if column in FIRST else len(FIRST))}


INSPECTED = pa.schema(
    [*contracts.INSPECTED, *((column, pa.type_for_alias(kind)) for column, (kind, _) in _measured().items())],
    metadata=contracts.INSPECTED.metadata,
)
"""The contract ``inspected`` with the measures of all gates; null where one does not apply."""
LATER = tuple(f"{column}/{gate.revision}" for column, (_, gate) in _measured().items() if column not in FIRST or gate.revision > 1)
"""Measures that came after the first version: part of the names of inspected units, so that a new measure inspects anew."""

DECIMALS = 5
QUANTILES = (0.05, 0.5, 0.95)


@dataclass(frozen=True)
class Gated:
    """``table``: the contract ``gated``, one row per gate and edit that it caught; ``dropped``: bool [n]; ``summary``: per gate,
    JSON-able."""

    table: pa.Table
    dropped: np.ndarray
    summary: dict[str, dict[str, Any]]


def measure(pair: Pair) -> dict[str, float | int | None]:
    """What all gates measure on one edit, rounded: columns of the contract ``inspected``."""
    columns = {name: value for gate in GATES.values() if gate.measure for name, value in gate.measure(pair).items()}
    return {name: round(value, DECIMALS) if isinstance(value, float) else value for name, value in columns.items()}


def decide(inspected: pa.Table, config: GatesConfig) -> Gated:
    """Apply the gates to a table of the schema :data:`INSPECTED`."""
    dropped = np.zeros(inspected.num_rows, dtype=bool)
    tables: list[pa.Table] = []
    summary: dict[str, dict[str, Any]] = {}
    for name, gate in GATES.items():
        settings: GateConfig = getattr(config, name)
        if settings.action == "off":
            summary[name] = {"action": "off"}
            continue
        seen = np.flatnonzero(~dropped) if gate.compares else np.arange(inspected.num_rows)
        finding = gate.decide(inspected.take(pa.array(seen)) if gate.compares else inspected, settings)
        rows = seen[finding.caught]
        tables.append(_rows(inspected["sample_id"].take(pa.array(rows)), name, finding, settings.action))
        newly = rows[~dropped[rows]] if settings.action == "drop" else rows[:0]
        summary[name] = _summary(settings, finding, len(newly))
        dropped[newly] = True
    table = pa.concat_tables(tables) if tables else contracts.GATED.empty_table()
    assert sum(entry.get("dropped", 0) for entry in summary.values()) == dropped.sum(), "every dropped edit counts once"
    return Gated(table.combine_chunks(), dropped, summary)


def decide_rows(inspected: pa.Table, config: GatesConfig) -> np.ndarray:
    """Which edits a gate drops that looks at one edit at a time: bool [n], for a table of the schema :data:`INSPECTED`. Gates that
    compare edits may drop more."""
    dropped = np.zeros(inspected.num_rows, dtype=bool)
    for name, gate in GATES.items():
        settings: GateConfig = getattr(config, name)
        if settings.action == "drop" and not gate.compares:
            dropped |= gate.decide(inspected, settings).caught
    return dropped


def inputs(config: GatesConfig) -> dict[str, str]:
    """Hashes of what the gates read beside the data set. Raises ``ValueError`` for a file that is not there."""
    found: dict[str, str] = {}
    for name, gate in GATES.items():
        settings: GateConfig = getattr(config, name)
        if gate.files is not None and settings.action != "off":
            found |= gate.files(settings)
    return found


def _rows(ids: pa.ChunkedArray, name: str, finding: Finding, action: str) -> pa.Table:
    count = len(ids)
    thresholds = np.broadcast_to(np.float64(finding.threshold), finding.values.shape)[finding.caught]
    columns = [ids, [name] * count, finding.values[finding.caught], thresholds, [action] * count]
    return pa.table(columns, names=contracts.GATED.names).cast(contracts.GATED)


def _summary(settings: GateConfig, finding: Finding, dropped: int) -> dict[str, Any]:
    """``measured``: edits with a value; ``dropped``: those that no gate before dropped, so that these add up; quantiles of the value."""
    known = finding.values[~np.isnan(finding.values)]
    quantiles = [round(float(value), DECIMALS) for value in np.quantile(known, QUANTILES)] if len(known) else None
    return {
        "action": settings.action,
        "settings": settings.model_dump(mode="json", exclude={"action"}),
        "measured": len(known),
        "caught": int(finding.caught.sum()),
        "dropped": dropped,
        "quantiles": quantiles,
    }
