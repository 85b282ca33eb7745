"""What changed between two selections of the same scores: counts, overlap, scores of what only one keeps, agreement of the ranks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.stats import spearmanr

from reward.evaluation.estimate import Estimate
from stages.context import Context
from stages.engine import contracts, tables
from stages.engine.tables import Tables
from stages.filter.selection import stored
from stages.filter.selection.scored_rows import ScoredRows
from stages.filter.selection.side_columns import side_column

Z = 1.959964
"""Standard normal quantile of a two-sided 95 % interval."""
FEWEST = 4
"""Pairs that have a rank correlation."""


@dataclass(frozen=True)
class Side:
    """A part of the two selections: its size, and the mean overall score of its samples."""

    name: str
    count: int
    mean: Estimate | None


@dataclass(frozen=True)
class StratumCounts:
    """Samples of one stratum in either selection and in both."""

    name: str
    a: int
    b: int
    both: int


@dataclass(frozen=True)
class Difference:
    """``only_a_ids`` and ``only_b_ids`` are the first samples that only one selection keeps, in the order of its ranks."""

    by: str
    a: Side
    b: Side
    both: Side
    only_a: Side
    only_b: Side
    jaccard: float
    correlation: Estimate | None
    strata: tuple[StratumCounts, ...]
    only_a_ids: tuple[str, ...]
    only_b_ids: tuple[str, ...]


def compare(context: Context, first: str, second: str, *, by: str, most: int) -> Difference:
    """Compare two selections of a run by name; ``by`` is the column of the strata; ``most``: ids of what only one of them keeps.

    Raises ``ValueError`` when one of them is not there, is damaged or of other scores.
    """
    step = context.run.step("filter")
    index = step.sound(files=False)
    step.remove_scratch()
    with tables.opened(step.path) as database:
        for side, name in (("a", first), ("b", second)):
            database.view(side, [stored.find(step, name, index.artifacts["scores"])], contracts.SELECTION)
        ScoredRows.of(database, step, index.artifacts)
        stratum = side_column(by, "--by", index.results.get("flags", ()))
        database.execute(
            f"CREATE TABLE compared AS SELECT sample_id, overall_mean AS value, {stratum} AS stratum, a.rank AS a, b.rank AS b "
            "FROM scored LEFT JOIN a USING (sample_id) LEFT JOIN b USING (sample_id) WHERE a.rank IS NOT NULL OR b.rank IS NOT NULL"
        )
        return _difference(database, first, second, by, most)


def _difference(database: Tables, first: str, second: str, by: str, most: int) -> Difference:
    """Of the table ``compared``: what is in ``beside``, and the ranks ``a`` and ``b``, null where a selection does not have a sample."""
    only_a, only_b, both = "b IS NULL", "a IS NULL", "a + b IS NOT NULL"
    names = (first, second, "both", f"only {first}", f"only {second}")
    conditions = ("a IS NOT NULL", "b IS NOT NULL", both, only_a, only_b)
    sides = [_side(database, name, condition) for name, condition in zip(names, conditions, strict=True)]
    ranks = database.table(
        "SELECT corr(x, y) AS r FROM (SELECT row_number() OVER (ORDER BY a) AS x, row_number() OVER (ORDER BY b) AS y "
        f"FROM compared WHERE {both})"
    )["r"][0].as_py()
    strata = database.table(
        "SELECT stratum::VARCHAR AS name, count(a) AS a, count(b) AS b, count(a + b) AS both "
        "FROM compared GROUP BY stratum ORDER BY stratum"
    )
    left = [
        database.table(f"SELECT sample_id FROM compared WHERE {condition} ORDER BY {rank} LIMIT {most}")["sample_id"].to_pylist()
        for condition, rank in ((only_a, "a"), (only_b, "b"))
    ]
    return Difference(
        by,
        *sides,
        jaccard=sides[2].count / database.number("SELECT count(*) FROM compared"),
        correlation=with_interval(ranks, sides[2].count) if sides[2].count >= FEWEST else None,
        strata=tuple(StratumCounts(**entry) for entry in strata.to_pylist()),
        only_a_ids=tuple(left[0]),
        only_b_ids=tuple(left[1]),
    )


def _side(database: Tables, name: str, condition: str) -> Side:
    """A part with the mean of its scores and a normal interval; no interval for one value."""
    figures = "count(*) AS count, avg(value) AS mean, stddev_samp(value) AS spread"
    found = database.table(f"SELECT {figures} FROM compared WHERE {condition}").to_pylist()[0]
    if found["count"] < 2:
        return Side(name, found["count"], Estimate(found["mean"]) if found["count"] else None)
    half = Z * found["spread"] / math.sqrt(found["count"])
    return Side(name, found["count"], Estimate(found["mean"], found["mean"] - half, found["mean"] + half))


def spearman(a: np.ndarray, b: np.ndarray) -> Estimate | None:
    """Rank correlation of two columns of numbers [n], equal ones sharing their mean rank; None for fewer than 4 and for a constant one."""
    if len(a) < FEWEST or a.min() == a.max() or b.min() == b.max():
        return None
    return with_interval(float(spearmanr(a, b).statistic), len(a))


def with_interval(r: float, count: int) -> Estimate:
    """A rank correlation of ``count`` pairs with its 95 % interval.

    It is Fisher's z with the variance (1 + r^2 / 2) / (n - 3) of Bonett and Wright (2000, Psychometrika 65).
    """
    z, half = np.arctanh(min(max(r, -1 + 1e-12), 1 - 1e-12)), Z * math.sqrt((1 + r * r / 2) / (count - 3))
    return Estimate(r, float(np.tanh(z - half)), float(np.tanh(z + half)))
