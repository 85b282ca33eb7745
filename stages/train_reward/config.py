"""Configuration of the reward model's training."""

from __future__ import annotations

from pydantic import Field, model_validator

from reward.training.config import RewardConfig


class TrainRewardConfig(RewardConfig):
    """The reward model and its training (model, loss, pretraining, training are the library's)."""

    caption_items: int = Field(4000, ge=0, description="Toy world's items (source, exact edit, instruction) for the warm-up; no ratings")
    workers: int = Field(1, ge=1, description="Processes of the Ray Train worker group")

    @model_validator(mode="after")
    def _workers_share_a_warm_up_batch(self) -> TrainRewardConfig:
        if self.pretraining.steps and self.pretraining.batch_size < self.workers:
            raise ValueError(
                f"pretraining.batch_size is {self.pretraining.batch_size}, but workers is {self.workers}, and each worker needs an item of "
                "every batch; raise the first or lower the second"
            )
        return self
