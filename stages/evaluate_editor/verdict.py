"""A judge's verdict on an edit, and how its scores are combined."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

Status = Literal["ok", "refused", "unparsable", "api_error", "missing"]
HEADLINE = ("semantic_consistency", "perceptual_quality")
"""The two sub-scores of VIEScore (Ku et al. 2024, arXiv 2312.14867), which have columns of their own."""


@dataclass(frozen=True)
class Verdict:
    """A judge's answer on one edit. ``scores``: sub-scores by name, 0 to 10, none unless the status is ok. ``raw``: the answer itself.

    ``overall`` is the judge's aggregate, 0 to 10. ``snapshot``: the model that the replies name; ``attempts``: calls that were made;
    ``tokens``: of prompts and of completions. Raises ``ValueError`` for scores that do not go with the status.
    """

    status: Status
    scores: Mapping[str, float] = field(default_factory=dict)
    overall: float | None = None
    raw: str = ""
    snapshot: str = ""
    attempts: int = 1
    tokens: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        given = (*self.scores.values(), self.overall)
        if self.status not in get_args(Status):
            raise ValueError(f"status {self.status!r} of a verdict is none of {', '.join(get_args(Status))}")
        if self.status != "ok" and given != (None,):
            raise ValueError(f"a verdict with status {self.status!r} has no scores, got {given}")
        if self.status == "ok" and not (self.scores and all(score is not None and 0 <= score <= 10 for score in given)):
            raise ValueError(f"an ok verdict needs sub-scores and an overall score in 0..10, got {dict(self.scores)} and {self.overall}")


@dataclass(frozen=True)
class JudgedEdit:
    """One system's edit of a benchmark item, with its verdict."""

    item_id: str
    task: str
    verdict: Verdict
    language: str = "en"
    subsets: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """What tells items apart."""
        return self.item_id, self.language


def viescore(semantic_consistency: float, perceptual_quality: float) -> float:
    """Overall of an edit: sqrt(SC * PQ), averaged over edits afterwards (VIEScore): a mean of roots, not the root of means."""
    return math.sqrt(semantic_consistency * perceptual_quality)
