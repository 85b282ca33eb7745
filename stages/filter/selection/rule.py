"""A selection from scores: order them, bound them, keep the first of each cluster, fill the quotas.

In: a table of the ``scores`` contract, and for quotas and clusters the columns beside it (side_columns.py). Out: a table of the
``selection`` contract, best first, which stored.py keeps as a small file that can be made again. The same scores in any order give the same
bytes: ties are broken by sample id, strata are taken by name, and the random rule draws by a hash of seed and id. Everything is vectorised.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from reward.likeness import NearHashes
from stages.engine.contracts import SELECTION
from stages.filter.selection import order, quotas
from stages.filter.selection.config import SelectionConfig
from stages.filter.selection.quotas import Stratum
from stages.filter.selection.side_columns import SideColumns, has_any
from stages.filter.selection.values import value_of

MAIN = "selected"
WHOLE = "all"
"""The stratum of a selection without quotas: every sample competes with every other."""


@dataclass(frozen=True)
class Selection:
    """``table`` follows the ``selection`` contract, best first; ``strata`` say what was asked and kept where there are quotas."""

    table: pa.Table
    strata: tuple[Stratum, ...] = ()


def select(
    scores: pa.Table, config: SelectionConfig, side_columns: SideColumns | None = None, others: Mapping[str, pa.Table] | None = None
) -> Selection:
    """The selected samples with their rank (0 is first) and the value that the rule ordered them by, as ``score``.

    ``side_columns`` are needed for flags, quotas and clusters, ``others`` (tables of selections by name) for ``like``. In this order:
    values beyond the bound and edits with unwanted flags are left out; of each cluster the first ones stay; quotas are filled from what is
    left, best first. Raises ``ValueError`` when fewer remain than the rule is to keep, or when it would keep none.
    """
    ids = order.fixed_width(scores["sample_id"])
    other = _other(config, others or {})
    count = size(scores.num_rows, config, other)
    value, ascending = value_of(scores, ids, config)
    assert np.isfinite(value).all(), "scores are finite"
    key = value if ascending else -value
    eligible = _eligible(key, ascending, config)
    if config.without_flags:
        clean = _clean(config, side_columns, scores)
        eligible = clean if eligible is None else eligible & clean
    if eligible is not None and not eligible.any():
        raise ValueError(f"selection {config.name}: no scored edit is within its {_constraints(config)}; relax it")
    rows = np.arange(len(ids)) if eligible is None else np.flatnonzero(eligible)
    clusters = _clusters(config, side_columns, scores)
    if clusters is None and config.quotas is None:
        rows = rows[order.first(key[rows], ids[rows], min(count or len(rows), len(rows)))]
    else:
        rows = rows[order.ranked(key[rows], ids[rows])]
    if clusters is not None and config.at_most is not None:
        rows = rows[order.rank_within(clusters[rows]) < config.at_most.count]
    strata: tuple[Stratum, ...] = ()
    stratum = pa.repeat(WHOLE, len(rows))
    if config.quotas is not None:
        rows, stratum, strata = _by_quotas(config, rows, count or 0, _need(side_columns), scores, other)
    if count is not None:
        if len(rows) < count:
            raise ValueError(
                f"selection {config.name}: {_size(config)} is {count:,} samples, and only {len(rows):,} of the {len(ids):,} scored edits "
                f"remain under its {_constraints(config)}; lower it or relax them"
            )
        rows, stratum = rows[:count], stratum[:count]
    columns = {
        "sample_id": pc.cast(pa.array(ids[rows]), pa.string()),
        "rank": np.arange(len(rows)),
        "stratum": stratum,
        "score": value[rows],
        "rule": pa.repeat(label(config), len(rows)),
    }
    return Selection(pa.table(columns).cast(SELECTION), strata)


def main(selections: Sequence[SelectionConfig]) -> SelectionConfig | None:
    """The selection that the data set is filtered for: the one named ``selected``, else the first that orders by scores, else None."""
    scored = [entry for entry in selections if entry.rule == "top"]
    return next((entry for entry in scored if entry.name == MAIN), scored[0] if scored else None)


def around_cut(scores: pa.Table, config: SelectionConfig, table: pa.Table, most: int) -> tuple[list[str], list[str]]:
    """Ids of the kept samples with the last ranks, nearest to the cut first, and of the best that are not kept; at most ``most`` each.

    With quotas or clusters a sample that was left out can have a better value than one that was kept.
    """
    just_in = table["sample_id"][-most:].to_pylist()[::-1]
    ids = order.fixed_width(scores["sample_id"])
    value, ascending = value_of(scores, ids, config)
    left = np.flatnonzero(~pc.is_in(scores["sample_id"], value_set=table["sample_id"].combine_chunks()).to_numpy())
    if not len(left):
        return just_in, []
    key = value[left] if ascending else -value[left]
    chosen = left[order.first(key, ids[left], min(most, len(left)))]
    return just_in, [name.decode() for name in ids[chosen].tolist()]


def label(config: SelectionConfig) -> str:
    """The rule in a word or three, e.g. ``top``, ``top lower-bound`` or ``bottom product``."""
    return config.rule if config.value == "overall" else f"{config.rule} {config.value}"


def _other(config: SelectionConfig, others: Mapping[str, pa.Table]) -> pa.Table | None:
    if config.like is None:
        return None
    if config.like not in others:
        raise ValueError(f"selection {config.name}: there is no selection {config.like} of the present scores to be like; make it first")
    return others[config.like]


def size(available: int, config: SelectionConfig, other: pa.Table | None) -> int | None:
    """How many samples to keep; None where a bound or ``all`` decides it. A fraction is of the scored edits, rounded half up."""
    if other is not None:
        return other.num_rows
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


def _eligible(key: np.ndarray, ascending: bool, config: SelectionConfig) -> np.ndarray | None:
    """Rows within the threshold or quantile, ties with it included: bool [n]; None where there is none.

    A quantile of the values is one of them: of the two next to it the one that keeps fewer.
    """
    if config.threshold is not None:
        return key <= (config.threshold if ascending else -config.threshold)
    if config.quantile is not None:
        level = Decimal(repr(config.quantile))
        place = math.floor((level if ascending else 1 - level) * (len(key) - 1))
        return key <= np.partition(key, place)[place]
    return None


def _clean(config: SelectionConfig, side_columns: SideColumns | None, scores: pa.Table) -> np.ndarray:
    """Rows without any of the flags that the selection leaves out, bool [n]."""
    for name in config.without_flags:
        _need(side_columns).check_flag(name, f"selection {config.name}: without_flags")
    return ~has_any(scores["flags"], config.without_flags)


def _clusters(config: SelectionConfig, side_columns: SideColumns | None, scores: pa.Table) -> np.ndarray | None:
    """Code of the cluster of every sample, int64 [n]."""
    if config.at_most is None:
        return None
    column = _need(side_columns).column(config.at_most.per, f"selection {config.name}: at_most.per", scores["sample_id"])
    if not config.at_most.bits:
        return column.codes
    if not pa.types.is_uint64(column.values.type):
        raise ValueError(f"selection {config.name}: at_most.bits is for perceptual hashes, {config.at_most.per} is none; leave it out")
    return NearHashes(column.values.to_numpy(), config.at_most.bits).clusters()[column.codes]


def _by_quotas(
    config: SelectionConfig, rows: np.ndarray, count: int, side_columns: SideColumns, scores: pa.Table, other: pa.Table | None
) -> tuple[np.ndarray, pa.Array, tuple[Stratum, ...]]:
    """The rows (best first) that fill the quotas, their strata, and what came of every quota."""
    assert config.quotas is not None
    column = side_columns.column(config.quotas.by, f"selection {config.name}: quotas.by", scores["sample_id"])
    codes, names = column.by_name()
    scored = np.bincount(codes, minlength=len(names))
    like: dict[str, int] = {}
    if other is not None and config.quotas.shares == "like":
        places = pc.index_in(other["sample_id"], value_set=scores["sample_id"].combine_chunks()).to_numpy()
        like = dict(zip(names, np.bincount(codes[places], minlength=len(names)).tolist(), strict=True))
    asked = quotas.asked_for(config, count, names, scored, like)
    available = np.bincount(codes[rows], minlength=len(names))
    rows = rows[quotas.fill(config, codes[rows], asked, names)]
    kept = np.bincount(codes[rows], minlength=len(names))
    figures = zip(names, scored.tolist(), available.tolist(), asked.tolist(), kept.tolist(), strict=True)
    return rows, pa.array(names, pa.string()).take(pa.array(codes[rows])), tuple(Stratum(*entry) for entry in figures)


def _need(side_columns: SideColumns | None) -> SideColumns:
    assert side_columns is not None, "quotas and clusters read columns beside the scores"
    return side_columns


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
