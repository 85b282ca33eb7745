"""One pass after another over presented edits, without gradients: what scoring and evaluation share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from reward.batch import Presented, packed
from reward.config import TOKEN_BUDGET
from reward.model import RewardModel, RewardOutput


@torch.no_grad()
def passes(
    *, model: RewardModel, presented: Sequence[Presented], token_budget: int = TOKEN_BUDGET
) -> Iterator[tuple[list[Presented], RewardOutput]]:
    """Consecutive sets and their scores, pass by pass; passes depend on the sets and the budget only. The model's training mode is kept."""
    was_training = model.training
    model.eval()
    try:
        root = model.cached_root()
        for part in packed(presented, token_budget):
            yield part, model(model.collate(part, root_cached=root is not None), root)
    finally:
        model.train(was_training)
