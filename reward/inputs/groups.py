"""Rated groups: one source, its candidates, their ratings and the preferences that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reward.inputs.pairs import Preference


@dataclass(frozen=True)
class RatedGroup:
    """A source, what was asked, and its rated candidates. Images are encoded bytes.

    scores: per candidate, dimension -> score. preferences refer to candidates by position.
    Raises ValueError for fewer than two candidates, or when the parts disagree in number.
    """

    source_id: str
    source: bytes
    instruction: str
    candidate_ids: tuple[str, ...]
    candidates: tuple[bytes, ...]
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
