"""The figures of a filter step: how the scores are distributed, what selections keep, and how good it is where the data set knows that."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from stages.datasets import readers as edits
from stages.engine.tables import Tables
from stages.filter.config import FilterConfig
from stages.filter.selection.scored_rows import ScoredRows
from stages.filter.selection.values import means
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
        table = made[entry.name]
        count = pq.read_metadata(table).num_rows
        selections[entry.name] = {"rule": entry.rule, "count": count, "share": round(count / rows.count, DECIMALS)}
        if knows:
            good = rows.tables.number("SELECT count(*) FROM read_parquet(?) SEMI JOIN good USING (sample_id)", [str(table)])
            selections[entry.name]["good_share"] = round(good / count, DECIMALS)
    found = {"selections": selections, "scores": _distributions(rows)}
    if knows:
        found["good_share"] = round(rows.tables.number("SELECT count(*) FROM good") / rows.count, DECIMALS)
    return found


def _good(rows: ScoredRows) -> Iterator[pa.RecordBatch]:
    for batch in rows.read("edits", ["sample_id", "metadata"]):
        good = pa.array(edits.good(batch["metadata"].to_pylist()))
        yield pa.RecordBatch.from_arrays([batch["sample_id"].filter(good)], schema=GOOD)


def _distributions(rows: ScoredRows) -> dict[str, dict[str, float]]:
    """Mean, standard deviation and quantiles of the score, overall and per dimension."""

    def columns() -> Iterator[dict[str, np.ndarray]]:
        for batch in rows.batches(scores=["overall_mean", "dimensions"]):
            yield {"overall": batch["scores"]["overall_mean"].to_numpy()} | means(batch["scores"])

    moments = {name: _Moments() for name in next(columns())}
    schema = pa.schema([(f"score_{place}", pa.float64()) for place in range(len(moments))])

    def kept() -> Iterator[pa.RecordBatch]:
        for found in columns():
            for name, of_name in moments.items():
                of_name.add(found[name])
            yield pa.RecordBatch.from_arrays([pa.array(found[name]) for name in moments], schema=schema)

    rows.tables.keep("distributed", kept(), schema)
    return {name: _distribution(rows.tables, column, moments[name]) for name, column in zip(moments, schema.names, strict=True)}


class _Moments:
    """Mean and sum of squared deviations of what was added, a batch at a time (Chan, Golub and LeVeque 1983).

    A database would add up in the order in which its threads finish, which moves the last digits.
    """

    def __init__(self) -> None:
        self.count, self.mean, self.squares = 0, 0.0, 0.0

    def add(self, values: np.ndarray) -> None:
        both, mean = self.count + len(values), float(values.mean())
        apart = mean - self.mean
        self.squares += float(((values - mean) ** 2).sum()) + apart**2 * self.count * len(values) / both
        self.mean += apart * len(values) / both
        self.count = both


def _distribution(database: Tables, column: str, moments: _Moments) -> dict[str, float]:
    """Of a column of the table ``distributed``. A quantile lies between two values, in proportion (type 7 of Hyndman and Fan 1996)."""
    count = moments.count
    places = {level: level * (count - 1) for level in QUANTILES}
    beside = [place for exact in places.values() for place in (math.floor(exact), math.ceil(exact))]
    value = _values_at(database, column, {0, count - 1, *beside})
    quantiles = {level: np.quantile([value[math.floor(at)], value[math.ceil(at)]], at % 1) for level, at in places.items()}
    return {
        "mean": round(moments.mean, DECIMALS),
        "standard_deviation": round(math.sqrt(moments.squares / count), DECIMALS),
        "minimum": value[0],
        **{f"quantile_{level:g}": round(float(found), DECIMALS) for level, found in quantiles.items()},
        "maximum": value[count - 1],
    }


def _values_at(database: Tables, column: str, places: set[int]) -> dict[int, float]:
    """The values that are at these places, counted from 0, when the column is sorted."""
    found: dict[int, float] = {}
    first = 0
    for batch in database.rows(f"SELECT {column} AS value FROM distributed ORDER BY value"):
        found |= {place: batch["value"][place - first].as_py() for place in places if first <= place < first + len(batch)}
        first += len(batch)
    return found
