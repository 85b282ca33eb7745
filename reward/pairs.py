"""Preference pairs of a group of rated candidates, with the paper's disentangling of ties (EditReward, section 3.3).

In: scores per candidate and dimension. Out: all pairs of the group, a before b, each labelled per dimension and overall (overall is the
sum of the dimensions). A pair that ties overall while its dimensions disagree becomes two rows with opposite labels (eq. 6). Other
overall ties stay as rows without an overall label, so that their dimensions can still be learnt from and ties can be counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

TIE_TOLERANCE = 1e-9
"""Scores closer than this are equal: averages of ratings carry rounding errors."""


@dataclass(frozen=True)
class Preference:
    """One preference between candidates a and b of a group (positions, a < b).

    dimensions: per dimension the target probability that a is better: 1, 0, or None for a tie.
    overall: the same for the sum of the dimensions. gaps: score of a minus score of b, per dimension.
    """

    a: int
    b: int
    dimensions: tuple[float | None, ...]
    overall: float | None
    gaps: tuple[float, ...]
    origin: Literal["plain", "tie-disentangled"] = "plain"

    @property
    def gap(self) -> float:
        """Overall score of a minus that of b."""
        return sum(self.gaps)


def build_preferences(
    scores: Sequence[Mapping[str, float]],
    dimensions: Sequence[str],
    ties: Literal["opposed", "off"] = "opposed",
) -> list[Preference]:
    """All pairs of a group, in the order (0, 1), (0, 2), ..., (1, 2), ...

    scores: one mapping from dimension to score per candidate. ties: `opposed` makes two rows of a complementary tie,
    first with a preferred, then b; `off` leaves it one row without an overall label.
    Raises ValueError when a candidate lacks a dimension.
    """
    for position, score in enumerate(scores):
        for dimension in dimensions:
            if dimension not in score:
                raise ValueError(f"candidate {position} has no score for {dimension}; rate it or leave it out")
    preferences = []
    for a, b in combinations(range(len(scores)), 2):
        gaps = tuple(float(scores[a][dimension]) - float(scores[b][dimension]) for dimension in dimensions)
        targets = tuple(_target(gap) for gap in gaps)
        overall = _target(sum(gaps))
        if overall is None and ties == "opposed" and {0.0, 1.0} <= set(targets):
            preferences += [Preference(a, b, targets, label, gaps, "tie-disentangled") for label in (1.0, 0.0)]
        else:
            preferences.append(Preference(a, b, targets, overall, gaps))
    return preferences


def _target(gap: float) -> float | None:
    if abs(gap) <= TIE_TOLERANCE:
        return None
    return 1.0 if gap > 0 else 0.0
