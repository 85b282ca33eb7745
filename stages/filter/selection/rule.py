"""A selection from scores: order them, bound them, keep the first of each cluster, fill the quotas.

In: the scored edits of a run (scored_rows.py), and for quotas and clusters columns beside the scores (side_columns.py). Out: rows of the
``selection`` contract, best first, which stored.py keeps as a file that can be made again. NumPy computes the value of each edit, DuckDB
sorts and counts, and no table is ever whole in memory. The same scores in any order give the same bytes: ties are broken by sample id,
strata are taken by name, and the random rule draws by a hash of seed and id.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from stages.engine.contracts import SELECTION
from stages.engine.tables import Tables
from stages.filter.selection import clusters, quotas, values
from stages.filter.selection.config import SelectionConfig
from stages.filter.selection.quotas import Stratum
from stages.filter.selection.scored_rows import ScoredRows
from stages.filter.selection.side_columns import SideColumn, check_flag, has_any, side_column

MAIN = "selected"
WHOLE = "all"
"""The stratum of a selection without quotas: every sample competes with every other."""
BY_KEY = "ORDER BY key, sample_id"


@dataclass(frozen=True)
class Selection:
    """``count`` samples: ``rows`` of the ``selection`` contract, best first, to be read once and before another selection is made."""

    count: int
    rows: Iterator[pa.RecordBatch]
    quotas: _Quotas | None = None

    @property
    def strata(self) -> tuple[Stratum, ...]:
        """What was asked and kept of each stratum where there are quotas, after all rows have been read."""
        return () if self.quotas is None else self.quotas.strata()


@dataclass(frozen=True)
class _Quotas:
    """Names of the strata and per stratum, int [k]: edits scored, edits to choose from; and what fills the quotas."""

    names: list[str]
    scored: np.ndarray
    available: np.ndarray
    filling: quotas.Filling

    def strata(self) -> tuple[Stratum, ...]:
        figures = (self.scored, self.available, self.filling.asked, self.filling.kept)
        return tuple(Stratum(*entry) for entry in zip(self.names, *(column.tolist() for column in figures), strict=True))


def select(scored: ScoredRows, config: SelectionConfig, others: Mapping[str, Path] | None = None) -> Selection:
    """The selected samples with their rank (0 is first) and the value that the rule ordered them by, as ``score``.

    ``others`` are tables of selections by name, for ``like``. In this order: values beyond the bound and edits with unwanted flags are left
    out; of each cluster the first ones stay; quotas are filled from what is left, best first. Raises ``ValueError`` when fewer remain
    than the rule is to keep, or when it would keep none.
    """
    other = _other(config, others or {})
    count = size(scored.count, config, None if other is None else pq.read_metadata(other).num_rows)
    database = scored.tables
    order_all(scored, config)
    conditions = [*_bound_of(database, config), *(["NOT unwanted"] if config.without_flags else [])]
    candidates = f"(SELECT * FROM ordered WHERE {' AND '.join(conditions) or 'true'})"
    if config.at_most is not None:
        first = f"row_number() OVER (PARTITION BY cluster {BY_KEY}) <= {config.at_most.count}"
        database.execute(f"CREATE OR REPLACE TABLE candidates AS FROM {candidates} QUALIFY {first}")
        candidates = "candidates"
    left = database.number(f"SELECT count(*) FROM {candidates}")
    if conditions and not left:
        raise ValueError(f"selection {config.name}: no scored edit is within its {_constraints(config)}; relax it")
    filled = None if config.quotas is None else _by_quotas(database, config, candidates, count or 0, other)
    if count is not None and left < count:
        raise ValueError(
            f"selection {config.name}: {_size(config)} is {count:,} samples, and only {left:,} of the {scored.count:,} scored edits "
            f"remain under its {_constraints(config)}; lower it or relax them"
        )
    found = left if count is None else count
    if filled is None and found < left:  # what comes after the last one, but for ties with it, need not be sorted
        last = f"SELECT key FROM {candidates} ORDER BY key LIMIT 1 OFFSET {found - 1}"
        candidates = f"(FROM {candidates} WHERE key <= ({last}))"
    return Selection(found, _selected(database, config, candidates, found, filled), filled)


def order_all(scored: ScoredRows, config: SelectionConfig) -> None:
    """Make the table ``ordered`` of all scored edits: ``sample_id`` and ``key``, which is smallest for the first; and as far as they are
    needed ``unwanted`` (whether a flag leaves it out), ``cluster`` and ``stratum``."""
    wanted = _side_columns(scored, config)
    dimensions = _dimensions(scored) if values.by_percentile(config) else []
    keys = [f"dimension_{place}" for place in range(len(dimensions))] or ["key"]
    fields = [("sample_id", pa.string()), *((name, pa.float64()) for name in keys), *((name, side.type) for name, side in wanted.items())]
    schema = pa.schema([*fields, *([("unwanted", pa.bool_())] if config.without_flags else [])])
    scored.tables.keep("ordered", _computed(scored, config, dimensions, wanted, schema), schema)
    if dimensions:
        _combine_percentiles(scored, config, keys)
    if config.at_most is not None and config.at_most.bits:
        clusters.join_near(scored.tables, "ordered", "cluster", config.at_most.bits)


def _combine_percentiles(scored: ScoredRows, config: SelectionConfig, means: Sequence[str]) -> None:
    """Replace the means of the dimensions in the table ``ordered`` by the ``key``. Scores are rounded, so that few values are different:
    these are counted and put in order, not the edits."""
    for name in means:
        share = f"sum(count(*)) OVER (ORDER BY {name})::DOUBLE / {scored.count}"
        scored.tables.execute(f"CREATE OR REPLACE TABLE of_{name} AS SELECT {name}, {share} AS share_{name} FROM ordered GROUP BY {name}")
    value = values.COMBINED[config.value]([f"share_{name}" for name in means])
    key = f"{'' if values.ascends(config) else '-'}({value}) AS key"
    dropped = ", ".join(column for name in means for column in (name, f"share_{name}"))
    joined = " ".join(f"JOIN of_{name} USING ({name})" for name in means)
    scored.tables.execute(f"CREATE OR REPLACE TABLE ordered AS SELECT * EXCLUDE ({dropped}), {key} FROM ordered {joined}")


def main(selections: Sequence[SelectionConfig]) -> SelectionConfig | None:
    """The selection that the data set is filtered for: the one named ``selected``, else the first that orders by scores, else None."""
    scored = [entry for entry in selections if entry.rule == "top"]
    return next((entry for entry in scored if entry.name == MAIN), scored[0] if scored else None)


def around_cut(scored: ScoredRows, config: SelectionConfig, table: Path, most: int) -> tuple[list[str], list[str]]:
    """Ids of the kept samples with the last ranks, nearest to the cut first, and of the best that are not kept; at most ``most`` each.

    ``table``: the file of the selection. With quotas or clusters a sample that was left out can have a better value than one that was kept.
    """
    order_all(scored, config.model_copy(update={"quotas": None, "at_most": None, "without_flags": ()}))
    kept = "read_parquet(?)"
    just_in = scored.tables.table(f"SELECT sample_id FROM {kept} ORDER BY rank DESC LIMIT {most}", [str(table)])
    left = scored.tables.table(f"SELECT sample_id FROM ordered ANTI JOIN {kept} USING (sample_id) {BY_KEY} LIMIT {most}", [str(table)])
    return just_in["sample_id"].to_pylist(), left["sample_id"].to_pylist()


def label(config: SelectionConfig) -> str:
    """The rule in a word or three, e.g. ``top``, ``top lower-bound`` or ``bottom product``."""
    return config.rule if config.value == "overall" else f"{config.rule} {config.value}"


def _side_columns(scored: ScoredRows, config: SelectionConfig) -> dict[str, SideColumn]:
    """The columns that the constraints of the selection name, as ``stratum`` and ``cluster``."""
    found: dict[str, SideColumn] = {}
    for flag in config.without_flags:
        check_flag(flag, f"selection {config.name}: without_flags", scored.flags)
    if config.at_most is not None:
        cluster = side_column(config.at_most.per, f"selection {config.name}: at_most.per", scored.artifacts, scored.flags)
        if config.at_most.bits and not cluster.hashes:
            raise ValueError(f"selection {config.name}: at_most.bits is for perceptual hashes, {config.at_most.per} is none; leave it out")
        found["cluster"] = cluster
    if config.quotas is not None:
        found["stratum"] = side_column(config.quotas.by, f"selection {config.name}: quotas.by", scored.artifacts, scored.flags)
    return found


def _computed(
    scored: ScoredRows, config: SelectionConfig, dimensions: Sequence[str], wanted: Mapping[str, SideColumn], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Rows of the table ``ordered`` as far as an edit alone gives them: instead of the key the means of the ``dimensions``, if there are
    any."""
    columns = {"scores": values.columns_of(config)}
    for side in wanted.values():
        columns.setdefault(side.artifact, []).append(side.column)
    if config.without_flags:
        columns["scores"].append("flags")
    for batch in scored.batches(**{artifact: [*dict.fromkeys(names)] for artifact, names in columns.items()}):
        scores = batch["scores"]
        found: list[pa.Array | pa.ChunkedArray | np.ndarray] = [scores["sample_id"]]
        if dimensions:
            means = values.means(scores)
            if [*means] != dimensions:
                raise ValueError(values.DIFFERENT)
            keys = [*means.values()]
        else:
            value = values.value_of(scores, config)
            keys = [value if values.ascends(config) else -value]
        assert all(np.isfinite(key).all() for key in keys), "scores are finite"
        found += [*keys, *(side.values(batch[side.artifact][side.column]) for side in wanted.values())]
        if config.without_flags:
            found.append(has_any(scores["flags"], config.without_flags))
        yield from pa.table(found, schema=schema).combine_chunks().to_batches()


def _dimensions(scored: ScoredRows) -> list[str]:
    first = next(scored.batches(scores=["dimensions"]), None)
    return [] if first is None else [*values.means(first["scores"])]


def _bound_of(database: Tables, config: SelectionConfig) -> list[str]:
    """The condition of the threshold or quantile on a row of ``ordered``, ties with it included; none where there is none.

    A quantile of the values is one of them: of the two next to it the one that keeps fewer.
    """
    ascending = values.ascends(config)
    if config.threshold is not None:
        bound = config.threshold if ascending else -config.threshold
    elif config.quantile is not None:
        level = Decimal(repr(config.quantile))
        count = database.number("SELECT count(*) FROM ordered")
        place = math.floor((level if ascending else 1 - level) * (count - 1))
        bound = database.table(f"SELECT key FROM ordered ORDER BY key LIMIT 1 OFFSET {place}")["key"][0].as_py()
    else:
        return []
    return [f"key <= '{bound!r}'::DOUBLE"]


def _by_quotas(database: Tables, config: SelectionConfig, candidates: str, count: int, other: Path | None) -> _Quotas:
    assert config.quotas is not None
    scored = _per_stratum(database, "ordered")
    names = [*scored]
    of_other: dict[str, int] = {}
    if other is not None and config.quotas.shares == "like":
        of_other = _per_stratum(database, "ordered SEMI JOIN read_parquet(?) USING (sample_id)", [str(other)])
    numbers = np.array([*scored.values()], np.int64)
    asked = quotas.asked_for(config, count, names, numbers, of_other)
    left = _per_stratum(database, candidates)
    available = np.array([left.get(name, 0) for name in names], np.int64)
    return _Quotas(names, numbers, available, quotas.Filling(config, asked, available, names))


def _per_stratum(database: Tables, rows: str, parameters: Sequence[object] = ()) -> dict[str, int]:
    """How many rows each stratum has, in the order of the strata's values."""
    found = database.table(f"SELECT stratum::VARCHAR AS name, count(*) AS count FROM {rows} GROUP BY stratum ORDER BY stratum", parameters)
    return dict(zip(found["name"].to_pylist(), found["count"].to_pylist(), strict=True))


def _selected(database: Tables, config: SelectionConfig, candidates: str, count: int, filled: _Quotas | None) -> Iterator[pa.RecordBatch]:
    """The best ``count`` candidates, or those that fill the quotas."""
    rank, rule = 0, label(config)
    stratum, limit = (f"'{WHOLE}'", f"LIMIT {count}") if filled is None else ("stratum::VARCHAR", "")
    names = None if filled is None else pa.array(filled.names, pa.string())
    for rows in database.rows(f"SELECT sample_id, {stratum} AS stratum, key FROM {candidates} {BY_KEY} {limit}"):
        if filled is not None:
            rows = rows.filter(pa.array(filled.filling.take(pc.index_in(rows["stratum"], value_set=names).to_numpy())))
        key = rows["key"].to_numpy()
        columns = {
            "sample_id": rows["sample_id"],
            "rank": np.arange(rank, rank + len(rows)),
            "stratum": rows["stratum"],
            "score": key if values.ascends(config) else -key,
            "rule": pa.repeat(rule, len(rows)),
        }
        rank += len(rows)
        yield from pa.table(columns).cast(SELECTION).combine_chunks().to_batches()
    assert rank == count, "every row was counted before"


def _other(config: SelectionConfig, others: Mapping[str, Path]) -> Path | None:
    if config.like is None:
        return None
    if config.like not in others:
        raise ValueError(f"selection {config.name}: there is no selection {config.like} of the present scores to be like; make it first")
    return others[config.like]


def size(available: int, config: SelectionConfig, other: int | None) -> int | None:
    """How many samples to keep; None where a bound or ``all`` decides it. ``other``: samples of the selection ``like``.

    A fraction is of the scored edits, rounded half up.
    """
    if other is not None:
        return other
    if config.quotas is not None and config.quotas.numbers is not None:
        return sum(config.quotas.numbers.values())
    if not available:
        raise ValueError(f"selection {config.name}: there are no scored edits to select from")
    if config.count is not None and config.count > available:
        raise ValueError(f"selection {config.name}: count {config.count:,} is more than the {available:,} scored edits; lower it")
    if config.fraction is None:
        return config.count
    count = math.floor(Decimal(repr(config.fraction)) * available + Decimal("0.5"))
    if not count:
        raise ValueError(f"selection {config.name}: fraction {config.fraction} of {available:,} scored edits keeps none; raise it")
    return count


def _size(config: SelectionConfig) -> str:
    if config.like is not None:
        return f"like {config.like}"
    return f"count {config.count:,}" if config.count is not None else f"fraction {config.fraction}"


def _bound(config: SelectionConfig) -> str:
    return f"threshold {config.threshold:g}" if config.threshold is not None else f"quantile {config.quantile:g}"


def _constraints(config: SelectionConfig) -> str:
    bound = [_bound(config)] if config.threshold is not None or config.quantile is not None else []
    cluster = [f"at_most {config.at_most.count:,} per {config.at_most.per}"] if config.at_most is not None else []
    flags = [f"without_flags {', '.join(config.without_flags)}"] if config.without_flags else []
    return " and ".join(bound + flags + cluster) or "order"
