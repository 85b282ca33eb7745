"""What a step of the training on preferences takes: whole groups, or single pairs of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from reward.inputs.groups import Preference, RatedGroup
from reward.training.config import LossConfig, TrainingConfig

if TYPE_CHECKING:
    from reward.inputs.batch import PreparedSample


def batch_size(config: TrainingConfig) -> int:
    """Groups or pairs of a step, over all workers."""
    size = config.pairs_per_batch or config.groups_per_batch
    assert size is not None, "the configuration checks that there is one"
    return size


def total_steps(config: TrainingConfig, count: int) -> int:
    """Steps of a training on this number of groups, or of pairs."""
    return config.steps or math.ceil((config.epochs or 0) * count / batch_size(config))


def check_token_budget(sample: PreparedSample, group: RatedGroup, budget: int) -> None:
    """Raise ValueError when an edit alone has more tokens than a pass may have. A group is larger than its edits; it is never divided."""
    if len(sample.tree) <= budget:
        return
    longest, candidate = max(zip(sample.tree.edit_lengths(), group.candidate_ids, strict=True))
    if longest > budget:
        raise ValueError(
            f"reward.training.token_budget is {budget}, but edit {candidate} of source {group.source_id} alone has {longest} tokens; "
            "raise it, or lower reward.model.presentation.image_area"
        )


def separate_pairs(groups: Sequence[RatedGroup], loss: LossConfig) -> list[RatedGroup]:
    """Each preference as a group of its own two candidates (EditReward, section 4.1: batches of 16 pairs). Images are shared, not copied.

    Two rows with opposite labels stay two pairs. Preferences from which this loss learns nothing are left out.
    """
    return [_pair(group, preference) for group in groups for preference in group.preferences if _teaches(preference, loss)]


def _pair(group: RatedGroup, preference: Preference) -> RatedGroup:
    a, b = preference.a, preference.b
    return replace(
        group,
        candidate_ids=(group.candidate_ids[a], group.candidate_ids[b]),
        candidates=(group.candidates[a], group.candidates[b]),
        scores=(group.scores[a], group.scores[b]),
        preferences=(replace(preference, a=0, b=1),),
    )


def _teaches(preference: Preference, loss: LossConfig) -> bool:
    if loss.kind in ("bradley_terry_ties", "regression"):
        return True  # ties are outcomes; ratings have no ties
    labels = (preference.overall if loss.aggregate_weight else None, *(preference.dimensions if loss.per_dimension_weight else ()))
    return any(label is not None for label in labels)
