"""Rated groups: one source, its candidates and their preferences; and how groups become batches.

All pairs of a group come from one pass per candidate: seven candidates give 21 pairs from seven rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from reward.losses import PairTargets
from reward.pairs import Preference


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


def pair_targets(groups: Sequence[RatedGroup], dimensions: int) -> PairTargets:
    """Preferences of groups whose candidates are the rows of one batch, in order."""
    a, b, overall, per_dimension = [], [], [], []
    offset = 0
    for group in groups:
        for preference in group.preferences:
            if len(preference.dimensions) != dimensions:
                raise ValueError(
                    f"group {group.source_id} has preferences in {len(preference.dimensions)} dimensions, "
                    f"the model has {dimensions}; build them with the model's dimensions"
                )
            a.append(offset + preference.a)
            b.append(offset + preference.b)
            overall.append(_label(preference.overall))
            per_dimension.append([_label(target) for target in preference.dimensions])
        offset += len(group.candidates)
    return PairTargets(
        a=torch.tensor(a, dtype=torch.int64),
        b=torch.tensor(b, dtype=torch.int64),
        overall=torch.tensor(overall, dtype=torch.float32),
        dimensions=torch.tensor(per_dimension, dtype=torch.float32).reshape(-1, dimensions),
    )


def _label(target: float | None) -> float:
    return float("nan") if target is None else target
