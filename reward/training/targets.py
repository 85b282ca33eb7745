"""What the losses learn from: labels of pairs, or ratings of rows, as tensors of one batch.

All pairs of a group come from one pass per candidate: seven candidates give 21 pairs from seven rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from reward.inputs.groups import RatedGroup
from reward.training.config import LossConfig


@dataclass(frozen=True)
class PairTargets:
    """Pairs of rows and their labels; NaN where a pair has no label.

    a, b: int64 [pair], rows of the batch; labels: [pair, 1 + dimension], overall and per dimension P(a preferred) or NaN.
    For `bradley_terry_ties` 0.5 is the outcome tie.
    """

    a: Tensor
    b: Tensor
    labels: Tensor

    def to(self, device: torch.device) -> PairTargets:
        """The same pairs on a device."""
        return PairTargets(self.a.to(device), self.b.to(device), self.labels.to(device))

    def counts(self) -> Tensor:
        """Labels overall and in each dimension: [1 + dimension]."""
        return self.labels.isfinite().sum(0)


@dataclass(frozen=True)
class RatingTargets:
    """What people gave to the rows of a batch, on their scale: ratings [row, dimension]."""

    ratings: Tensor

    def to(self, device: torch.device) -> RatingTargets:
        """The same ratings on a device."""
        return RatingTargets(self.ratings.to(device))

    def counts(self) -> Tensor:
        """Rows, for the aggregate and for each dimension: [1 + dimension]."""
        rows, dimensions = self.ratings.shape
        return torch.full((1 + dimensions,), rows, device=self.ratings.device)


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
    a, b, labels = [], [], []
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
            labels.append([tie if target is None else target for target in (preference.overall, *preference.dimensions)])
        offset += len(group.candidates)
    return PairTargets(
        a=torch.tensor(a, dtype=torch.int64),
        b=torch.tensor(b, dtype=torch.int64),
        labels=torch.tensor(labels, dtype=torch.float32).reshape(-1, 1 + dimensions),
    )
