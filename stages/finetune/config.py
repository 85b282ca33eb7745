"""Configuration of the editor's fine-tuning."""

from __future__ import annotations

from pydantic import Field, model_validator

from finetune.config import BASE_TRAINING, EditorConfig, EditorTrainingConfig
from stages.datasets.config import WorldEdits
from stages.engine.config import Config


class BaseTraining(Config):
    """The base editor of the toy world: the same network as the arms', trained on another noisy set."""

    edits: WorldEdits = Field(WorldEdits(dataset="world-edits", split="base"), description="Its noisy set, disjoint from all others")
    training: EditorTrainingConfig = Field(BASE_TRAINING, description="Optimisation")


class FinetuneConfig(Config):
    """Arms: every selection fine-tunes a copy of the base editor with the same steps."""

    editor: EditorConfig = Field(EditorConfig(), description="Codec, text encoder, denoiser, objective, sampler")
    base: BaseTraining = Field(BaseTraining(), description="Training of the base editor, in place of a pretrained one")
    training: EditorTrainingConfig = Field(EditorTrainingConfig(), description="Optimisation of every arm")
    arms: tuple[str, ...] = Field(("full", "selected", "random", "naive"), min_length=1, description="Selections to train on")
    parallel_arms: int = Field(2, ge=1, description="Arms trained at the same time, where the cluster has room")
    workers: int = Field(1, ge=1, description="Processes per training group")

    @model_validator(mode="after")
    def _workers_share_a_batch(self) -> FinetuneConfig:
        for key, training in (("base.training", self.base.training), ("training", self.training)):
            if training.batch_size < self.workers:
                raise ValueError(
                    f"{key}.batch_size is {training.batch_size}, but workers is {self.workers}, and each worker needs a sample of "
                    "every batch; raise the first or lower the second"
                )
        return self
