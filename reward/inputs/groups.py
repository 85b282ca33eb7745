"""Groups of rated candidates, and their preference pairs with the paper's disentangling of ties (EditReward, section 3.3).

In: scores per candidate and dimension. Out: all pairs of the group, a before b, each labelled per dimension and overall (overall is the
sum of the dimensions). A tie is *complementary* when it ties overall while its dimensions disagree. What becomes of ties:

| ties      | a complementary tie           | any other overall tie         | as                               |
| --------- | ----------------------------- | ----------------------------- | -------------------------------- |
| `opposed` | two rows with opposite labels | one row without overall label | the paper, eq. 6                 |
| `all`     | two rows with opposite labels | two rows with opposite labels | the released training data       |
| `soft`    | one row with overall 0.5      | one row without overall label | `opposed`, at half the weight    |
| `off`     | one row without overall label | one row without overall label | rated; for Bradley-Terry with ties |

Rows without an overall label stay, so that their dimensions can still be learnt from and ties can be counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from reward.inputs.sample import EncodedImage

Ties = Literal["opposed", "all", "soft", "off"]
Origin = Literal["plain", "tie-disentangled", "tie-doubled", "tie-soft"]
"""How a row came to be: as rated, half of a complementary tie, half of another overall tie, a complementary tie with a soft label."""

TIE_TOLERANCE = 1e-9
"""Scores closer than this are equal: averages of ratings carry rounding errors."""


@dataclass(frozen=True)
class Preference:
    """One preference between candidates a and b of a group (positions, a < b).

    dimensions: per dimension the target probability that a is better: 1, 0, or None for a tie.
    overall: the same for the sum of the dimensions, or 0.5 where the origin is tie-soft.
    gaps: score of a minus score of b, per dimension.
    """

    a: int
    b: int
    dimensions: tuple[float | None, ...]
    overall: float | None
    gaps: tuple[float, ...]
    origin: Origin = "plain"

    @property
    def gap(self) -> float:
        """Overall score of a minus that of b."""
        return sum(self.gaps)


@dataclass(frozen=True)
class RatedGroup:
    """A source, what was asked, and its rated candidates. Images are encoded bytes, or where they are: then none is held in memory.

    scores: per candidate, dimension -> score. preferences refer to candidates by position.
    Raises ValueError for fewer than two candidates, or when the parts disagree in number.
    """

    source_id: str
    source: EncodedImage
    instruction: str
    candidate_ids: tuple[str, ...]
    candidates: tuple[EncodedImage, ...]
    scores: tuple[Mapping[str, float], ...]
    preferences: tuple[Preference, ...]
    task: str = ""

    def __post_init__(self) -> None:
        count = len(self.candidates)
        if count < 2:
            raise ValueError(f"group {self.source_id} has {count} candidates; a preference needs at least two")
        if len(self.candidate_ids) != count or len(self.scores) != count:
            raise ValueError(
                f"group {self.source_id} has {count} candidates, {len(self.candidate_ids)} ids and "
                f"{len(self.scores)} scores; expected one of each per candidate"
            )
        for preference in self.preferences:
            if not (0 <= preference.a < count and 0 <= preference.b < count and preference.a != preference.b):
                raise ValueError(
                    f"group {self.source_id} has a preference between candidates {preference.a} and {preference.b}, "
                    f"expected two different positions below {count}"
                )


def build_preferences(
    scores: Sequence[Mapping[str, float]],
    dimensions: Sequence[str],
    ties: Ties = "opposed",
) -> list[Preference]:
    """All pairs of a group, in the order (0, 1), (0, 2), ..., (1, 2), ...

    scores: one mapping from dimension to score per candidate. ties: see the table at the top of this file; of two rows with opposite
    labels the first prefers a, the second b.
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
        rows: list[tuple[float | None, Origin]] = [(overall, "plain")] if overall is not None else _tied(ties, {0.0, 1.0} <= set(targets))
        preferences += [Preference(a, b, targets, label, gaps, origin) for label, origin in rows]
    return preferences


def _tied(ties: Ties, complementary: bool) -> list[tuple[float | None, Origin]]:
    """Overall label and origin of the rows of a pair that ties overall."""
    if complementary and ties in ("opposed", "all"):
        return [(1.0, "tie-disentangled"), (0.0, "tie-disentangled")]
    if ties == "all":
        return [(1.0, "tie-doubled"), (0.0, "tie-doubled")]
    return [(0.5, "tie-soft")] if complementary and ties == "soft" else [(None, "plain")]


def _target(gap: float) -> float | None:
    if abs(gap) <= TIE_TOLERANCE:
        return None
    return 1.0 if gap > 0 else 0.0
