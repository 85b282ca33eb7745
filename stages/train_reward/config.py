"""Configuration of the reward model's training."""

from __future__ import annotations

from pydantic import Field

from reward.training.config import RewardConfig


class TrainRewardConfig(RewardConfig):
    """The reward model and its training (model, loss, pretraining, training are the library's)."""

    caption_items: int = Field(4000, ge=0, description="Toy world's items (source, exact edit, instruction) for the warm-up; no ratings")
    workers: int = Field(1, ge=1, description="Processes of the Ray Train worker group")
