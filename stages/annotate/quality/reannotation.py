"""What is rated again: groups for a further rater, and cells for an adjudicator.

In: accepted ratings, who rated what (accepted or not), the manifest, the rules. Out: groups that somebody rated but nobody
accepted rated whole; groups whose raters differ by more than the limit and have fewer raters than the rules allow; and the cells of groups
with all their raters on which two of them are two levels apart or more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from stages.annotate.quality.adjudication import Disputed, adjudications, settled
from stages.annotate.quality.config import ReannotationRules
from stages.annotate.ratings.csv_table import csv_table
from stages.annotate.ratings.groups import rated_whole
from stages.annotate.ratings.manifest import Manifest, level_width


@dataclass(frozen=True)
class Again:
    """A group for a further rater. raters: who must not get it again."""

    group_id: str
    reason: str
    message: str
    raters: tuple[str, ...]


def again(
    accepted: pa.Table, rated: Mapping[str, Collection[str]], manifest: Manifest, rules: ReannotationRules
) -> tuple[list[Again], list[Disputed]]:
    """Groups to rate again and cells to adjudicate, sorted. rated: who rated each group, accepted or not."""
    by_group = rated_whole(accepted, manifest)
    adjudicated = adjudications(accepted)
    level = level_width(manifest.scale.levels)
    groups: list[Again] = []
    disputed: list[Disputed] = []
    for group in sorted(rated):
        scores = by_group.get(group, {})
        everybody = tuple(sorted(rated[group]))
        if not scores:
            message = "nobody whose ratings are accepted has rated the whole group"
            groups.append(Again(group, "no-accepted-rater", message, everybody))
            continue
        stacked = np.stack([scores[name] for name in sorted(scores)])  # [raters, candidates, dimensions]
        apart = mean_difference(stacked) / level
        if len(scores) < rules.raters:
            if apart > rules.difference:
                message = f"{len(scores)} raters differ by {apart:.2f} levels on average, at most {rules.difference:g} wanted"
                groups.append(Again(group, "raters-differ", message, everybody))
            continue
        for place, column in np.argwhere(np.round(np.ptp(stacked, axis=0), 9) >= 2 * level):
            candidate, dimension = sorted(manifest.sampled[group])[place], manifest.dimensions[column]
            if settled(adjudicated, candidate, dimension, rated[group]) is None:
                disputed.append(Disputed(group, candidate, dimension, tuple(sorted(stacked[:, place, column].tolist()))))
    return groups, disputed


def mean_difference(stacked: np.ndarray) -> float:
    """Mean absolute difference of two raters over all cells and pairs of raters of [raters, candidates, dimensions]; 0 for one rater."""
    first, second = np.triu_indices(len(stacked), 1)
    return float(np.abs(stacked[first] - stacked[second]).mean()) if len(first) else 0.0


def listed(groups: Sequence[Again]) -> bytes:
    """The list ``reannotate.csv``, which `annotate export --groups` takes."""
    rows = [{"group_id": row.group_id, "reason": row.reason, "message": row.message, "raters": " ".join(row.raters)} for row in groups]
    return csv_table(rows, ("group_id", "reason", "message", "raters"))
