"""Statistics of pairs of candidates that were made elsewhere: labels, editors, near duplicates, pairs of the data set, what was dropped.

In: the indexes of generate and annotate, and the complete groups. Out: plain values for ``statistics.json`` and the report:
``labels``: per split and dimension, and ``overall``, the number of pairs that are ``decided`` and that are a ``tie``, each pair once;
``editors``: per editor and split the number of rated candidates in complete groups;
``near_duplicates``: of source images, as :func:`stages.generate.split.groups_of` counts them;
``compared``: pairs ``in_files`` of ratings, each once; ``pairs`` of complete groups, each once; and ``both``; where the files are of pairs;
``dropped``: rows set aside per step and reason, and ``duplicates`` among the ratings.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from reward.inputs.groups import TIE_TOLERANCE
from stages.annotate.agreement.alpha import OVERALL
from stages.annotate.ratings.groups import CompleteGroup
from stages.engine import steps
from stages.engine.rundir import StepFolder
from stages.preferences.statistics import gaps_of

NEAR = "near_duplicates"


def of(
    generate: StepFolder,
    annotate: StepFolder,
    groups: Sequence[CompleteGroup],
    split_of: Mapping[str, str],
    editor_of: Mapping[str, str],
    dimensions: Sequence[str],
) -> dict[str, Any] | None:
    """The statistics; None for candidates that editors of this program made."""
    made, rated = generate.require(), annotate.require()
    if NEAR not in made.results:
        return None
    found: dict[str, Any] = {
        "labels": _labels(groups, split_of, dimensions),
        "editors": _editors(groups, split_of, editor_of),
        NEAR: made.results[NEAR],
        "dropped": {steps.GENERATE: made.quarantined, steps.ANNOTATE: rated.quarantined, "duplicates": rated.counts["duplicates"]},
    }
    if "comparisons" in rated.artifacts:
        columns = annotate.read("comparisons", ["candidate_a", "candidate_b"]).columns
        delivered = set(zip(*(column.to_pylist() for column in columns), strict=True))
        pairs = {pair for group in groups for pair in combinations(group.candidates, 2)}  # sorted ids, as in comparisons
        found["compared"] = {"in_files": len(delivered), "pairs": len(pairs), "both": len(delivered & pairs)}
    return found


def _labels(groups: Sequence[CompleteGroup], split_of: Mapping[str, str], dimensions: Sequence[str]) -> dict[str, dict[str, Any]]:
    counts: defaultdict[str, np.ndarray] = defaultdict(lambda: np.zeros((2, len(dimensions) + 1), int))  # decided, tie
    for group in groups:
        gaps = gaps_of(group)[np.triu_indices(len(group.candidates), 1)]  # [pairs, dimensions + 1]
        tied = (np.abs(gaps) <= TIE_TOLERANCE).sum(0)
        counts[split_of[group.source_id]] += np.stack([len(gaps) - tied, tied])
    names = [*dimensions, OVERALL]
    return {
        split: {name: {"decided": int(decided), "tie": int(tie)} for name, decided, tie in zip(names, *table, strict=True)}
        for split, table in sorted(counts.items())
    }


def _editors(groups: Sequence[CompleteGroup], split_of: Mapping[str, str], editor_of: Mapping[str, str]) -> dict[str, dict[str, int]]:
    counts = Counter((editor_of[candidate], split_of[group.source_id]) for group in groups for candidate in group.candidates)
    found: dict[str, dict[str, int]] = {}
    for (editor, split), count in sorted(counts.items()):
        found.setdefault(editor, {})[split] = count
    return found
