"""Inter-rater agreement per dimension, with intervals from a bootstrap over groups.

In: a ``ratings`` table and the levels of the scale. Out: Krippendorff's alpha (nominal, ordinal, interval), exact agreement, agreement
within one level, quadratic weighted kappa, and agreement on the direction of pairs. Ratings are compared within an item, dimension and
round.

Alpha and kappa are undefined without variation, so they have no value then. Read alpha together with the shares of the levels: if raters
nearly always give the same level, alpha is low although they agree.

Sources: K. Krippendorff, Computing Krippendorff's alpha-reliability, 2011; J. Cohen, Weighted kappa, Psychological Bulletin 70, 1968.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from reward.evaluation.estimate import Estimate
from stages.annotate.agreement.bootstrap import DIGITS, add_up, estimate, ratio, resampled_sums, share

NO_VARIATION = "no variation"
NO_OVERLAP = "no item was rated twice"
NO_PAIRS = "no pair was ordered twice"
OVERALL = "overall"
"""The sum of all dimensions that one rater gave an item."""

Metric = Literal["nominal", "ordinal", "interval"]


@dataclass(frozen=True)
class Panel:
    """Ratings of one dimension. group, round, item, rater: codes [n], an item being a candidate in one round; value: scores [n]."""

    group: np.ndarray
    round: np.ndarray
    item: np.ndarray
    rater: np.ndarray
    value: np.ndarray


def panels(ratings: pa.Table) -> dict[str, Panel]:
    """One panel per dimension of a ``ratings`` table, by name."""
    whole, names = _whole(ratings), ratings["dimension"].to_numpy(zero_copy_only=False)
    return {name: _rows(whole, names == name) for name in sorted(set(names))}


def overall(ratings: pa.Table) -> Panel:
    """Sums over the dimensions of a ``ratings`` table, for items that a rater scored in all of them."""
    whole = _whole(ratings)
    _, first, inverse, counts = np.unique(_joint(whole.item, whole.rater), return_index=True, return_inverse=True, return_counts=True)
    kept = counts == len(ratings["dimension"].unique())
    return replace(_rows(whole, first[kept]), value=np.bincount(inverse, whole.value)[kept])


def agreement(panel: Panel, levels: Sequence[float], *, seed: int) -> dict[str, Any]:
    """All statistics of one dimension as plain values for a report, estimates as ``{value, low, high, n}``."""
    coincidences, pairs, items = rater_tables(panel, levels)
    sums = resampled_sums(np.stack([coincidences, pairs], axis=1), seed=seed)  # [resamples, 2, levels, levels]
    numbers, n = np.asarray(levels, dtype=np.float64), int(items)

    def alpha_of(metric: Metric) -> Estimate:
        return estimate(coincidences, sums[:, 0], lambda t: alpha(t, numbers, metric), n=n, undefined=NO_VARIATION if n else NO_OVERLAP)

    distance = np.abs(np.subtract.outer(np.arange(len(levels)), np.arange(len(levels))))

    def share_within(steps: int) -> Estimate:
        return estimate(pairs, sums[:, 1], lambda t: ratio((t * (distance <= steps)).sum((1, 2)), t.sum((1, 2))), n=n, undefined=NO_OVERLAP)

    kappa = estimate(pairs, sums[:, 1], lambda t: weighted_kappa(t, distance**2), n=n, undefined=NO_VARIATION if n else NO_OVERLAP)
    estimates = {f"alpha_{metric}": alpha_of(metric) for metric in ("nominal", "ordinal", "interval")} | {
        "exact": share_within(0),
        "within_one_level": share_within(1),
        "quadratic_weighted_kappa": kappa,
    }
    level_shares = np.bincount(np.searchsorted(numbers, panel.value), minlength=len(levels)) / max(1, len(panel.value))
    return {
        "ratings": len(panel.value),
        "raters": len(set(panel.rater.tolist())),
        "items_rated_twice": n,
        "groups_rated_twice": len(coincidences),
        "level_shares": {f"{level:g}": round(float(part), DIGITS) for level, part in zip(levels, level_shares, strict=True)},
        **{name: value.to_json() for name, value in estimates.items()},
        **directions(panel, seed=seed),
    }


def directions(panel: Panel, *, seed: int) -> dict[str, Any]:
    """Agreement of two raters on the better of two candidates of a group.

    ``direction``: of the pairs that both order strictly, the share that they order alike. ``rater_predicts_rater``: of the pairs that one
    rater orders strictly, the share that the other orders alike; a tie of the other counts one half, as if broken at random. The accuracy
    of a reward model, which never ties, is compared with it. ``rater_predicts_rater_ties_wrong``: the same, but a tie counts zero.
    """
    tables = direction_tables(panel)  # [groups, 3, 2]
    sums = resampled_sums(tables, seed=seed)
    return {
        name: estimate(tables[:, i], sums[:, i], share, n=int(tables[:, i, 1].sum()), undefined=NO_PAIRS).to_json()
        for i, name in enumerate(("direction", "rater_predicts_rater", "rater_predicts_rater_ties_wrong"))
    }


def by_task(ratings: pa.Table, tasks: Mapping[str, str], levels: Sequence[float], *, seed: int) -> dict[str, dict[str, Any]]:
    """:func:`agreement` per task (``tasks``: task of each source_id) and dimension; empty when all ratings are of one task."""
    of_row = np.array([tasks.get(source_id, "") for source_id in ratings["source_id"].to_pylist()], dtype=object)
    names = sorted(set(of_row))
    return {name: summary(ratings.filter(pa.array(of_row == name)), levels, seed=seed) for name in names} if len(names) > 1 else {}


def summary(ratings: pa.Table, levels: Sequence[float], *, seed: int) -> dict[str, Any]:
    """:func:`agreement` of each dimension, and :func:`directions` of their sum under ``overall``."""
    found = {name: agreement(panel, levels, seed=seed) for name, panel in panels(ratings).items()}
    return found | {OVERALL: directions(overall(ratings), seed=seed)}


def alpha(coincidences: np.ndarray, values: np.ndarray, metric: Metric) -> np.ndarray:
    """Krippendorff's alpha of coincidence tables [b, levels, levels]: [b]; NaN without variation.

    1 - D_o / D_e with D_o the mean squared difference within items and D_e that of all ratings paired at random (2011, step D).
    """
    marginals = coincidences.sum(axis=2)  # [b, levels]
    if metric == "nominal":
        squared = np.broadcast_to(1.0 - np.eye(len(values)), coincidences.shape)
    else:
        at = np.cumsum(marginals, axis=1) - marginals / 2 if metric == "ordinal" else np.broadcast_to(values, marginals.shape)
        squared = (at[:, :, None] - at[:, None, :]) ** 2
    observed = (coincidences * squared).sum((1, 2))
    expected = (marginals[:, :, None] * marginals[:, None, :] * squared).sum((1, 2))
    return 1.0 - (marginals.sum(1) - 1.0) * ratio(observed, expected)


def weighted_kappa(tables: np.ndarray, disagreement: np.ndarray) -> np.ndarray:
    """Cohen's weighted kappa (1968) of tables [b, levels, levels] of rater by rater counts: [b]; NaN without variation.

    disagreement: weight of each cell [levels, levels], 0 on the diagonal. On the symmetric tables of :func:`rater_tables`, in which each
    pair of raters counts both ways, the expected disagreement comes from the pooled shares of the levels.
    """
    expected = tables.sum(2)[:, :, None] * tables.sum(1)[:, None, :]
    return 1.0 - tables.sum((1, 2)) * ratio((tables * disagreement).sum((1, 2)), (expected * disagreement).sum((1, 2)))


def rater_tables(panel: Panel, levels: Sequence[float]) -> tuple[np.ndarray, np.ndarray, int]:
    """Per group with an item rated twice: coincidences and plain counts of ordered rater pairs, each [groups, levels, levels].

    Also the number of such items. In the coincidences an item with m raters weighs m, in the plain counts m (m - 1).
    """
    counts, group_of = item_counts(panel, levels)
    raters = counts.sum(axis=1)
    kept = raters >= 2
    counts, raters = counts[kept], raters[kept]
    # Ordered pairs of different raters of an item: all pairs of its ratings minus each rating with itself, [items, levels, levels].
    pairs = counts[:, :, None] * counts[:, None, :] - counts[:, :, None] * np.eye(len(levels))
    group = group_of[kept]
    return add_up(pairs / (raters - 1)[:, None, None], group), add_up(pairs, group), int(kept.sum())


def item_counts(panel: Panel, levels: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Number of raters per item and level [items, levels], and the group of every item [items]."""
    items, first, item = np.unique(panel.item, return_index=True, return_inverse=True)
    counts = np.zeros((len(items), len(levels)))
    np.add.at(counts, (item, np.searchsorted(np.asarray(levels), panel.value)), 1)
    return counts, panel.group[first]


def direction_tables(panel: Panel) -> np.ndarray:
    """Per group with two raters: (hits, trials) of the three statistics of :func:`directions`: [groups, 3, 2]."""
    # One block of rows per group; within it a table of scores [raters, items], NaN where a rater has not rated an item.
    order = np.argsort(panel.group, kind="stable")
    borders = np.flatnonzero(np.diff(panel.group[order])) + 1
    tables = []
    for rows in np.split(order, borders):
        raters, rater = np.unique(panel.rater[rows], return_inverse=True)
        if len(raters) < 2:
            continue
        items, first_row, item = np.unique(panel.item[rows], return_index=True, return_inverse=True)
        scores = np.full((len(raters), len(items)), np.nan)
        scores[rater, item] = panel.value[rows]
        round_of = panel.round[rows][first_row]
        first, second = np.nonzero(np.triu(round_of[:, None] == round_of[None, :], 1))
        signs = np.sign(np.round(scores[:, first] - scores[:, second], 9))  # [raters, pairs], NaN where not rated
        tables.append(sum((_compare(signs[a], signs[b]) for a, b in combinations(range(len(raters)), 2)), np.zeros((3, 2))))
    return np.array(tables).reshape(-1, 3, 2)


def _compare(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    both = ~np.isnan(a) & ~np.isnan(b)
    a, b = a[both], b[both]
    strict = (a != 0) & (b != 0)
    alike = int((a[strict] == b[strict]).sum())
    undecided = int(((a == 0) ^ (b == 0)).sum())  # one orders the pair, the other ties
    labels = 2 * int(strict.sum()) + undecided  # each of the two predicts the pairs that the other orders
    return np.array([[alike, strict.sum()], [2 * alike + 0.5 * undecided, labels], [2 * alike, labels]], dtype=np.float64)


def _whole(ratings: pa.Table) -> Panel:
    """All ratings, whatever their dimension."""
    group, round, candidate, rater = (_codes(ratings[name]) for name in ("source_id", "round", "candidate_id", "annotator"))
    return Panel(group, round, _joint(candidate, round), rater, ratings["score"].to_numpy())


def _rows(panel: Panel, rows: np.ndarray) -> Panel:
    return Panel(panel.group[rows], panel.round[rows], panel.item[rows], panel.rater[rows], panel.value[rows])


def _codes(column: pa.ChunkedArray) -> np.ndarray:
    """Codes of the values in sorted order, so that results do not depend on the order of the rows."""
    encoded = column.combine_chunks().dictionary_encode()
    rank = np.empty(len(encoded.dictionary), dtype=np.int64)
    rank[np.argsort(encoded.dictionary.to_pylist())] = np.arange(len(rank))
    return rank[encoded.indices.to_numpy()]


def _joint(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a * (int(b.max(initial=0)) + 1) + b
