"""The figures of a filter step: how the scores are distributed, what selections keep, and how good it is where the data set knows that."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from stages.datasets import readers as edits
from stages.engine.contracts import SELECTION
from stages.filter.config import FilterConfig
from stages.filter.selection.scored_rows import ScoredRows
from stages.scoring.rows import DECIMALS

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
GOOD = pa.schema([("sample_id", pa.string())])


def of(rows: ScoredRows, config: FilterConfig, made: Mapping[str, Path]) -> dict[str, Any]:
    """JSON values; ``made``: the files of the selections by name."""
    knows = edits.knows_truth(config.input.dataset)
    if knows:
        rows.tables.keep("good", _good(rows), GOOD)
    selections = {}
    for entry in config.selections:
        rows.tables.view("kept", [made[entry.name]], SELECTION)
        count = rows.tables.number("SELECT count(*) FROM kept")
        selections[entry.name] = {"rule": entry.rule, "count": count, "share": round(count / rows.count, DECIMALS)}
        if knows:
            good = rows.tables.number("SELECT count(*) FROM kept SEMI JOIN good USING (sample_id)")
            selections[entry.name]["good_share"] = round(good / count, DECIMALS)
    found = {"selections": selections, "scores": _distributions(rows)}
    if knows:
        found["good_share"] = round(rows.tables.number("SELECT count(*) FROM good") / rows.count, DECIMALS)
    return found


def _good(rows: ScoredRows) -> Iterator[pa.RecordBatch]:
    for batch in rows.tables.rows("SELECT sample_id, metadata FROM scored"):
        good = pa.array(edits.good(batch["metadata"].to_pylist()))
        yield pa.RecordBatch.from_arrays([batch["sample_id"].filter(good)], schema=GOOD)


def _distributions(rows: ScoredRows) -> dict[str, dict[str, float]]:
    """Mean, standard deviation and quantiles of the score, overall and per dimension."""
    means = {name: f"dimensions[{place}].mean" for place, name in enumerate(rows.dimensions(), 1)}
    return {name: _distribution(rows, column) for name, column in ({"overall": "overall_mean"} | means).items()}


def _distribution(rows: ScoredRows, column: str) -> dict[str, float]:
    """Stored scores are whole numbers of ``10**-DECIMALS``, whose sums have no rounding: those of floats depend on the order in which a
    database adds them up."""
    whole, one, count = f"round({column} * {10**DECIMALS})::HUGEINT", 10**DECIMALS, rows.count
    total, squares = (rows.tables.number(f"SELECT sum({term}) FROM scored") for term in (whole, f"{whole} * {whole}"))
    least, *quantiles, most = rows.tables.quantiles(column, "scored", (0.0, *QUANTILES, 1.0))
    return {
        "mean": round(total / count / one, DECIMALS),
        "standard_deviation": round(math.sqrt(count * squares - total**2) / count / one, DECIMALS),
        "minimum": least,
        **{f"quantile_{level:g}": round(found, DECIMALS) for level, found in zip(QUANTILES, quantiles, strict=True)},
        "maximum": most,
    }
