"""Inter-rater agreement by round, overlap between raters, and the check of the targets, as plain values for ``quality.json``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.annotate.agreement import ac2, icc, new_raters
from stages.annotate.agreement.alpha import panels, rater_tables, summary
from stages.annotate.config import Target
from stages.annotate.ratings.rating_task import ADJUDICATION, ROUNDS

NEW_RATERS = "alpha_ordinal_new_raters"
"""The same value as ``alpha_ordinal``, with an interval over raters and groups."""


def by_round(ratings: pa.Table, levels: Sequence[float], *, seed: int) -> dict[str, dict[str, Any]]:
    """All agreement statistics per round and dimension; ``confusion`` counts how often two raters gave which levels.

    Adjudications are left out, because adjudicators have seen the other scores.
    """
    rounds = sorted(set(ratings["round"].to_pylist()) - {ADJUDICATION}, key=ROUNDS.index)
    return {name: of_round(ratings.filter(pc.equal(ratings["round"], name)), levels, seed=seed) for name in rounds}


def of_round(ratings: pa.Table, levels: Sequence[float], *, seed: int) -> dict[str, Any]:
    """Statistics of one round by dimension; ``overall``, the sum of the dimensions, has only those on pair directions."""
    result = summary(ratings, levels, seed=seed)
    for name, panel in panels(ratings).items():
        _, pairs, _ = rater_tables(panel, levels)
        result[name] |= ac2.coefficients(panel, levels, seed=seed) | icc.correlations(panel, seed=seed)
        result[name][NEW_RATERS] = new_raters.alpha_ordinal(panel, levels, seed=seed).to_json()
        result[name]["confusion"] = pairs.sum(0).astype(int).tolist()
    return result


def overlap(raters_of: Mapping[str, Collection[str]]) -> dict[str, Any]:
    """Number of groups that several people rated, and the sets of raters that no shared group connects (ideally one set)."""
    return {
        "groups": len(raters_of),
        "groups_rated_twice": sum(len(names) > 1 for names in raters_of.values()),
        "connected_sets": connected(raters_of.values()),
    }


def connected(raters: Iterable[Collection[str]]) -> list[list[str]]:
    """Connected components of the raters, sorted; two raters are connected by a shared group. raters: those of each group."""
    groups = [sorted(names) for names in raters if names]
    names, last = np.unique([name for group in groups for name in group], return_inverse=True)
    if not len(names):
        return []
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components  # scipy is slow to import, and the rating page starts with this module

    # An edge goes from each rater of a group to the group's first rater.
    first = np.repeat(np.searchsorted(names, [group[0] for group in groups]), [len(group) for group in groups])
    graph = coo_array((np.ones(len(last)), (first, last)), shape=(len(names), len(names)))
    count, component = connected_components(graph, directed=False)
    return [names[component == number].tolist() for number in range(count)]


def checked_targets(
    rounds: Mapping[str, Mapping[str, Any]], of_all: Mapping[str, Mapping[str, Any]], targets: Sequence[Target]
) -> list[dict[str, Any]]:
    """Every target with its estimate from the accepted ratings, which decides, and ``estimate_of_all``.

    rounds, of_all: statistics of the accepted and of all ratings. ``met`` is None where there are no accepted ratings.
    """
    result = []
    for target in targets:
        entry: dict[str, Any] = target.model_dump(mode="json")
        found, entry["estimate_of_all"] = (
            statistics.get(target.round, {}).get(target.dimension, {}).get(target.statistic) for statistics in (rounds, of_all)
        )
        if found is None:
            result.append(entry | {"estimate": None, "met": None})
            continue
        value = found[target.bound]
        result.append(entry | {"estimate": found, "met": value is not None and value >= target.at_least})
    return result


def met(targets: Sequence[Mapping[str, Any]]) -> bool:
    """Whether there are ratings for at least one target and all such targets are met."""
    found = [target["met"] for target in targets if target["met"] is not None]
    return bool(found) and all(found)
