"""Gates: cheap checks of an edit before it costs a forward pass of the reward model.

A gate measures (in a worker, from the decoded images of one edit) and decides (in the driver, from the table ``inspected``, vectorised). So
another threshold needs no second look at the images. A gate with the action ``flag`` counts and shows what it catches, one with ``drop``
also keeps it from being scored.

To add one: a file with ``measure`` and a decision, an entry in the tables here, its column in the contract ``inspected``, its
configuration in stages/filter/gates/config.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from stages.engine import contracts
from stages.filter.gates import change, geometry, near_duplicate, redrawn, source_reuse, swapped, upscaled, wording
from stages.filter.gates.config import Gate, GatesConfig
from stages.filter.gates.finding import Finding
from stages.filter.gates.pair import Pair

MEASURES: tuple[Callable[[Pair], dict[str, Any]], ...] = (
    change.measure,
    redrawn.measure,
    swapped.measure,
    upscaled.measure,
    wording.measure,
)
"""Each returns columns of the contract ``inspected``."""

ROW_GATES: dict[str, Callable[[pa.Table, Any], Finding]] = {
    "nothing_asked": wording.nothing_asked,
    "language": wording.language,
    "size": geometry.size,
    "aspect": geometry.aspect,
    "unchanged": change.unchanged,
    "upscaled": upscaled.decide,
    "swapped": swapped.decide,
    "drift": change.drift,
    "redrawn": redrawn.decide,
}
"""Gates that look at one edit. All of them see all edits."""

SET_GATES: dict[str, Callable[[pa.Table, Any], Finding]] = {
    "near_duplicate": near_duplicate.near_duplicate,
    "near_embedding": near_duplicate.near_embedding,
    "source_reuse": source_reuse.decide,
}
"""Gates that compare an edit with earlier ones. Each sees what the gates before it have not dropped: a dropped edit takes nobody's
place."""

GATES = ROW_GATES | SET_GATES
"""In the order in which a dropped edit is attributed."""

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
    columns = {name: value for function in MEASURES for name, value in function(pair).items()}
    return {name: round(value, DECIMALS) if isinstance(value, float) else value for name, value in columns.items()}


def decide(inspected: pa.Table, config: GatesConfig) -> Gated:
    """Apply the gates to a table of the contract ``inspected``."""
    dropped = np.zeros(inspected.num_rows, dtype=bool)
    tables: list[pa.Table] = []
    summary: dict[str, dict[str, Any]] = {}
    for name, function in GATES.items():
        gate: Gate = getattr(config, name)
        if gate.action == "off":
            summary[name] = {"action": "off"}
            continue
        seen = np.flatnonzero(~dropped) if name in SET_GATES else np.arange(inspected.num_rows)
        finding = function(inspected.take(pa.array(seen)) if name in SET_GATES else inspected, gate)
        rows = seen[finding.caught]
        tables.append(_rows(inspected["sample_id"].take(pa.array(rows)), name, finding, gate.action))
        newly = rows[~dropped[rows]] if gate.action == "drop" else rows[:0]
        summary[name] = _summary(gate, finding, len(newly))
        dropped[newly] = True
    table = pa.concat_tables(tables) if tables else contracts.GATED.empty_table()
    assert sum(entry.get("dropped", 0) for entry in summary.values()) == dropped.sum(), "every dropped edit counts once"
    return Gated(table.combine_chunks(), dropped, summary)


def inputs(config: GatesConfig) -> dict[str, str]:
    """Hash of what the gates read beside the data set. Raises ``ValueError`` for a file that is not there."""
    gate = config.near_embedding
    return {} if gate.action == "off" or gate.embeddings is None else {"embeddings": near_duplicate.hash_of(gate.embeddings)}


def _rows(ids: pa.ChunkedArray, name: str, finding: Finding, action: str) -> pa.Table:
    count = len(ids)
    columns = [ids, [name] * count, finding.values[finding.caught], finding.thresholds[finding.caught], [action] * count]
    return pa.table(columns, names=contracts.GATED.names).cast(contracts.GATED)


def _summary(gate: Gate, finding: Finding, dropped: int) -> dict[str, Any]:
    """``measured``: edits with a value; ``dropped``: those that no gate before dropped, so that these add up; quantiles of the value."""
    known = finding.values[~np.isnan(finding.values)]
    quantiles = [round(float(value), DECIMALS) for value in np.quantile(known, QUANTILES)] if len(known) else None
    return {
        "action": gate.action,
        "settings": gate.model_dump(mode="json", exclude={"action"}),
        "measured": len(known),
        "caught": int(finding.caught.sum()),
        "dropped": dropped,
        "quantiles": quantiles,
    }
