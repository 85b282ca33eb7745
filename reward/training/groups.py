"""Rated groups: one source, its candidates and their preferences; and how groups become batches.

All pairs of a group come from one pass per candidate: seven candidates give 21 pairs from seven rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from reward.config import LossConfig
from reward.training.losses import PairTargets, RatingTargets
from reward.training.pairs import Preference


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


def loss_targets(groups: Sequence[RatedGroup], dimensions: Sequence[str], loss: LossConfig) -> PairTargets | RatingTargets:
    """What a loss learns from, for groups whose candidates are the rows of one batch, in order.

    The ratings of the rows for `regression`; for all others the pairs. A tie (None) has no label, except for `bradley_terry_ties`,
    where it is the outcome 0.5. Raises ValueError when a group has other dimensions than the model.
    """
    if loss.kind == "regression":
        return _rating_targets(groups, dimensions)
    return _pair_targets(groups, len(dimensions), tie=0.5 if loss.kind == "bradley_terry_ties" else float("nan"))


def _rating_targets(groups: Sequence[RatedGroup], dimensions: Sequence[str]) -> RatingTargets:
    rows = []
    for group in groups:
        for candidate_id, score in zip(group.candidate_ids, group.scores, strict=True):
            if missing := [dimension for dimension in dimensions if dimension not in score]:
                raise ValueError(
                    f"candidate {candidate_id} of group {group.source_id} has no score for {missing[0]}, which regression needs; "
                    "rate it or choose a loss of pairs"
                )
            rows.append([score[dimension] for dimension in dimensions])
    return RatingTargets(torch.tensor(rows, dtype=torch.float32).reshape(-1, len(dimensions)))


def _pair_targets(groups: Sequence[RatedGroup], dimensions: int, tie: float) -> PairTargets:
    """tie: the label of a tie."""
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
            overall.append(tie if preference.overall is None else preference.overall)
            per_dimension.append([tie if target is None else target for target in preference.dimensions])
        offset += len(group.candidates)
    return PairTargets(
        a=torch.tensor(a, dtype=torch.int64),
        b=torch.tensor(b, dtype=torch.int64),
        overall=torch.tensor(overall, dtype=torch.float32),
        dimensions=torch.tensor(per_dimension, dtype=torch.float32).reshape(-1, dimensions),
    )
