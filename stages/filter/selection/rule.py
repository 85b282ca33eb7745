"""A selection from scores: order them, bound them, keep the first of each cluster, fill the quotas.

In: the scored edits of a run (scored_rows.py). Out: rows of the ``selection`` contract, best first, which stored.py keeps as a file that
can be made again. Everything is a query of DuckDB, and no table is ever whole in memory. The same scores in any order give the same bytes:
ties are broken by sample id, strata are taken by name, and the random rule draws by a hash of seed and id.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa

from stages.engine import near_hashes
from stages.engine.contracts import SELECTION
from stages.engine.tables import PLACE, Tables, numbered
from stages.filter.selection import quotas, values
from stages.filter.selection.config import SelectionConfig
from stages.filter.selection.quotas import Stratum
from stages.filter.selection.scored_rows import ScoredRows
from stages.filter.selection.side_columns import has_any, is_hash, require_key, side_column

MAIN = "selected"
WHOLE = "all"
"""The stratum of a selection without quotas: every sample competes with every other."""
BY_KEY = "ORDER BY key, sample_id"


@dataclass(frozen=True)
class Selection:
    """``count`` samples: ``rows`` of the ``selection`` contract, best first, to be read once and before another selection is made.

    ``strata``: what was asked and kept of each stratum where there are quotas."""

    count: int
    rows: Iterator[pa.RecordBatch]
    strata: tuple[Stratum, ...] = ()


def select(scored: ScoredRows, config: SelectionConfig, others: Mapping[str, Path] | None = None) -> Selection:
    """The selected samples with their rank (0 is first) and the value that the rule ordered them by, as ``score``.

    ``others`` are tables of selections by name, for ``like``. In this order: values beyond the bound and edits with unwanted flags are left
    out; of each cluster the first ones stay; quotas are filled from what is left, best first. Raises ``ValueError`` when fewer remain
    than the rule is to keep, or when it would keep none.
    """
    database = scored.tables
    other = _other(config, others or {})
    database.view("other", [] if other is None else [other], SELECTION)
    count = size(scored.count, config, None if other is None else database.number("SELECT count(*) FROM other"))
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
    asked = None if config.quotas is None else _asked(database, config, candidates, count or 0)
    if count is not None and left < count:
        raise ValueError(
            f"selection {config.name}: {_size(config)} is {count:,} samples, and only {left:,} of the {scored.count:,} scored edits "
            f"remain under its {_constraints(config)}; lower it or relax them"
        )
    found = left if count is None else count
    if asked is not None:
        return Selection(found, _selected(database, config, "filled"), _filled(database, candidates, asked))
    if found < left:  # what comes after the last one, but for ties with it, need not be sorted
        last = f"SELECT key FROM {candidates} ORDER BY key LIMIT 1 OFFSET {found - 1}"
        candidates = f"(FROM {candidates} WHERE key <= ({last}))"
    return Selection(found, _selected(database, config, candidates, found))


def order_all(scored: ScoredRows, config: SelectionConfig) -> None:
    """Make the table ``ordered`` of all scored edits: ``sample_id`` and ``key``, which is smallest for the first; and as far as they are
    needed ``unwanted`` (whether a flag leaves it out), ``cluster`` and ``stratum``."""
    name = f"selection {config.name}"
    value, rows = values.value_of(scored, config)
    columns = ["sample_id", f"{'' if values.ascends(config) else '-'}({value})::DOUBLE AS key"]
    if config.without_flags:
        columns.append(f"{has_any(config.without_flags, f'{name}: without_flags', scored.flags)} AS unwanted")
    if config.at_most is not None:
        columns.append(f"{side_column(config.at_most.per, f'{name}: at_most.per', scored.flags)} AS cluster")
        if config.at_most.bits and not is_hash(config.at_most.per):
            raise ValueError(f"{name}: at_most.bits is for perceptual hashes, {config.at_most.per} is none; leave it out")
    if config.quotas is not None:
        columns.append(f"{side_column(config.quotas.by, f'{name}: quotas.by', scored.flags)} AS stratum")
    scored.tables.execute(f"CREATE OR REPLACE TABLE ordered AS SELECT {', '.join(columns)} FROM {rows}")
    if config.at_most is not None:
        require_key(scored.tables, config.at_most.per, "cluster", f"{name}: at_most.per")
    if config.quotas is not None:
        require_key(scored.tables, config.quotas.by, "stratum", f"{name}: quotas.by")
    if config.at_most is not None and config.at_most.bits:
        near_hashes.join_near(scored.tables, "ordered", "cluster", config.at_most.bits)


def main(selections: Sequence[SelectionConfig]) -> SelectionConfig | None:
    """The selection that the data set is filtered for: the one named ``selected``, else the first that orders by scores, else None."""
    scored = [entry for entry in selections if entry.rule == "top"]
    return next((entry for entry in scored if entry.name == MAIN), scored[0] if scored else None)


def around_cut(scored: ScoredRows, config: SelectionConfig, table: Path, most: int) -> tuple[list[str], list[str]]:
    """Ids of the kept samples with the last ranks, nearest to the cut first, and of the best that are not kept; at most ``most`` each.

    ``table``: the file of the selection. With quotas or clusters a sample that was left out can have a better value than one that was kept.
    """
    order_all(scored, config.model_copy(update={"quotas": None, "at_most": None, "without_flags": ()}))
    scored.tables.view("kept", [table], SELECTION)
    just_in = scored.tables.table(f"SELECT sample_id FROM kept ORDER BY rank DESC LIMIT {most}")
    left = scored.tables.table(f"SELECT sample_id FROM ordered ANTI JOIN kept USING (sample_id) {BY_KEY} LIMIT {most}")
    return just_in["sample_id"].to_pylist(), left["sample_id"].to_pylist()


def label(config: SelectionConfig) -> str:
    """The rule in a word or three, e.g. ``top``, ``top lower-bound`` or ``bottom product``."""
    return config.rule if config.value == "overall" else f"{config.rule} {config.value}"


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


def _asked(database: Tables, config: SelectionConfig, candidates: str, count: int) -> list[Stratum]:
    """The strata with their quotas, in the order of their values; nothing is kept yet."""
    scored, left, other = (_per_stratum(database, rows) for rows in ("ordered", candidates, "ordered SEMI JOIN other USING (sample_id)"))
    names, there = [*scored], np.array([left.get(name, 0) for name in scored], np.int64)
    asked = quotas.asked_for(config, count, names, np.array([*scored.values()], np.int64), other)
    quotas.check(config, asked, there, names)
    return [Stratum(*entry, 0) for entry in zip(names, scored.values(), there.tolist(), asked.tolist(), strict=True)]


def _per_stratum(database: Tables, rows: str) -> dict[str, int]:
    """How many rows each stratum has, in the order of the strata's values."""
    found = database.table(f"SELECT stratum::VARCHAR AS name, count(*) AS count FROM {rows} GROUP BY stratum ORDER BY stratum")
    return dict(zip(found["name"].to_pylist(), found["count"].to_pylist(), strict=True))


def _filled(database: Tables, candidates: str, strata: Sequence[Stratum]) -> tuple[Stratum, ...]:
    """Make the table ``filled`` of the candidates that fill the quotas: the best of each stratum, and for what it lacks the best others."""
    table = pa.table({"name": [entry.name for entry in strata], "asked": [entry.asked for entry in strata]})
    database.keep("quotas", table.to_batches(), table.schema)
    best = f"JOIN quotas ON stratum::VARCHAR = name QUALIFY row_number() OVER (PARTITION BY stratum {BY_KEY}) <= asked"
    database.execute(f"CREATE OR REPLACE TABLE filled AS SELECT rows.* FROM {candidates} AS rows {best}")
    short = sum(max(entry.asked - entry.available, 0) for entry in strata)
    database.execute(f"INSERT INTO filled FROM {candidates} ANTI JOIN filled USING (sample_id) {BY_KEY} LIMIT {short}")
    kept = _per_stratum(database, "filled")
    return tuple(replace(entry, kept=kept.get(entry.name, 0)) for entry in strata)


def _selected(database: Tables, config: SelectionConfig, rows: str, count: int | None = None) -> Iterator[pa.RecordBatch]:
    """The best ``count`` of the rows, or all."""
    stratum, sign = f"'{WHOLE}'" if config.quotas is None else "stratum::VARCHAR", "" if values.ascends(config) else "-"
    limit = "" if count is None else f"LIMIT {count}"
    best = database.rows(f"SELECT sample_id, {stratum} AS stratum, {sign}key AS score FROM {rows} {BY_KEY} {limit}")
    for batch in numbered(best):
        whole = batch.append_column("rule", pa.repeat(label(config), len(batch)))  # sorting a constant column takes memory
        yield whole.rename_columns({PLACE: "rank"}).select(SELECTION.names).cast(SELECTION)


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


def _constraints(config: SelectionConfig) -> str:
    bounds = {"threshold": config.threshold, "quantile": config.quantile}  # one of them at most
    bound = [f"{name} {value:g}" for name, value in bounds.items() if value is not None]
    cluster = [f"at_most {config.at_most.count:,} per {config.at_most.per}"] if config.at_most is not None else []
    flags = [f"without_flags {', '.join(config.without_flags)}"] if config.without_flags else []
    return " and ".join(bound + flags + cluster) or "order"
