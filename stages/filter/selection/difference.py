"""What changed between two selections of the same scores: counts, overlap, scores of what only one keeps, agreement of the ranks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.stats import spearmanr

from reward.evaluation.estimate import Estimate
from stages.context import Context
from stages.filter.selection import stored
from stages.filter.selection.side_columns import SideColumns

Z = 1.959964
"""Standard normal quantile of a two-sided 95 % interval."""


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
    """``only_a_ids`` and ``only_b_ids`` are the samples that only one selection keeps, in the order of its ranks."""

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


def compare(context: Context, first: str, second: str, *, by: str) -> Difference:
    """Compare two selections of a run by name; ``by`` is the column of the strata.

    Raises ``ValueError`` when one of them is not there, is damaged or of other scores.
    """
    step = context.run.step("filter")
    index = step.require()
    a, b = (stored.load(step, name, index.artifacts["scores"]) for name in (first, second))
    scores = step.read("scores", ["sample_id", "overall_mean"])
    column = SideColumns(step.read, frozenset(index.artifacts)).column(by, "--by", scores["sample_id"])
    codes, names = column.by_name()
    return difference(first, second, a, b, scores, by=by, codes=codes, names=names)


def difference(
    first: str, second: str, a: pa.Table, b: pa.Table, scores: pa.Table, *, by: str, codes: np.ndarray, names: list[str]
) -> Difference:
    """Compare selection tables. ``scores``: sample_id and overall_mean [n]; ``codes`` int [n] into the strata ``names``."""
    known = scores["sample_id"].combine_chunks()
    at_a, at_b = (pc.index_in(table["sample_id"], value_set=known).to_numpy() for table in (a, b))
    rank_a, rank_b = np.full(len(known), -1), np.full(len(known), -1)
    rank_a[at_a], rank_b[at_b] = np.arange(len(at_a)), np.arange(len(at_b))
    in_a, in_b = rank_a >= 0, rank_b >= 0
    both, either = in_a & in_b, in_a | in_b
    value = scores["overall_mean"].to_numpy()
    parts = ((first, in_a), (second, in_b), ("both", both), (f"only {first}", in_a & ~in_b), (f"only {second}", in_b & ~in_a))
    sides = [Side(name, int(mask.sum()), mean(value[mask])) for name, mask in parts]
    counts = [np.bincount(codes[mask], minlength=len(names)).tolist() for mask in (in_a, in_b, both)]
    strata = tuple(StratumCounts(*entry) for entry in zip(names, *counts, strict=True) if entry[1] or entry[2])
    left = [table["sample_id"].filter(pa.array(~other[at])).to_pylist() for table, at, other in ((a, at_a, in_b), (b, at_b, in_a))]
    return Difference(
        by,
        *sides,
        jaccard=float(both.sum() / either.sum()),
        correlation=spearman(rank_a[both], rank_b[both]),
        strata=strata,
        only_a_ids=tuple(left[0]),
        only_b_ids=tuple(left[1]),
    )


def mean(values: np.ndarray) -> Estimate | None:
    """Mean of values [n] with a normal interval; None without values; no interval for one value."""
    if len(values) < 2:
        return Estimate(float(values[0])) if len(values) else None
    centre, half = float(values.mean()), Z * float(values.std(ddof=1)) / math.sqrt(len(values))
    return Estimate(centre, centre - half, centre + half)


def spearman(a: np.ndarray, b: np.ndarray) -> Estimate | None:
    """Rank correlation of two columns of numbers [n], equal ones sharing their mean rank; None for fewer than 4 and where one is constant.

    The interval is Fisher's z with the variance (1 + r^2 / 2) / (n - 3) of Bonett and Wright (2000, Psychometrika 65).
    """
    if len(a) < 4 or a.min() == a.max() or b.min() == b.max():
        return None
    r = float(spearmanr(a, b).statistic)
    z, half = np.arctanh(min(max(r, -1 + 1e-12), 1 - 1e-12)), Z * math.sqrt((1 + r * r / 2) / (len(a) - 3))
    return Estimate(r, float(np.tanh(z - half)), float(np.tanh(z + half)))
