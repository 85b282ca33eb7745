"""Whether a person's scores fit the others' better when the two dimensions are exchanged.

In: the ratings of the ledger and of a file. Out: a warning per person. Columns that were swapped in a table leave every score valid, so
only a comparison with others shows it. Ratings are compared on the same candidate and round.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from stages.annotate.ratings.delivery import Cell, ExistingRating

LEAST_CANDIDATES = 20
SHARE = 0.6
"""A warning is given when exchanging the dimensions makes the mean difference smaller than this share of what it is."""


def warnings(cells: Mapping[Cell, ExistingRating], annotators: Collection[str], dimensions: Sequence[str]) -> list[str]:
    """Warnings about these annotators; none where a project has not two dimensions."""
    if len(dimensions) != 2:
        return []
    scores: defaultdict[tuple[str, str], defaultdict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for (candidate, dimension, annotator, round), rating in cells.items():
        scores[candidate, round][annotator][dimension] = rating.score
    own: defaultdict[str, list[list[float]]] = defaultdict(list)
    others: defaultdict[str, list[np.ndarray]] = defaultdict(list)
    for by_annotator in scores.values():
        whole = {name: [of[d] for d in dimensions] for name, of in by_annotator.items() if len(of) == 2}
        for name in whole.keys() & set(annotators) if len(whole) > 1 else ():
            own[name].append(whole[name])
            others[name].append(np.mean([of for other, of in whole.items() if other != name], axis=0))
    found = []
    for name in sorted(own):
        mine, theirs = np.array(own[name]), np.array(others[name])  # [candidates, 2]
        straight, exchanged = np.abs(mine - theirs).mean(), np.abs(mine[:, ::-1] - theirs).mean()
        if len(mine) >= LEAST_CANDIDATES and exchanged < SHARE * straight:
            found.append(
                f"{name}: the scores differ from the others' by {exchanged:.2f} on average when {dimensions[0]} and {dimensions[1]} are "
                f"exchanged, by {straight:.2f} as they are ({len(mine)} candidates); were the two columns swapped?"
            )
    return found
