"""Configuration of the editors' fine-tuning: of the toy data set's small editor, or of a large one."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Discriminator, Field, Tag, model_validator

from finetune.config import BASE_TRAINING, EditorConfig, EditorTrainingConfig, FlowSetting, RectifiedFlowConfig
from finetune.library_editors.config import PretrainedEditorConfig
from finetune.training.config import LargeTrainingConfig
from stages.datasets.config import WorldEdits
from stages.engine.config import Config


class BaseTraining(Config):
    """The base editor of the toy world: the same network as the arms', trained on another noisy set."""

    edits: WorldEdits = Field(WorldEdits(dataset="world-edits", split="base"), description="Its noisy set, disjoint from all others")
    training: EditorTrainingConfig = Field(BASE_TRAINING, description="Optimisation")


class Arms(Config):
    """Arms: every selection fine-tunes a copy of the base editor. ``base_caveat``: what a reader of their scores must know of it."""

    base_caveat: ClassVar[str] = ""

    arms: tuple[str, ...] = Field(("full", "selected", "random", "naive"), min_length=1, description="Selections to train on")
    parallel_arms: int = Field(2, ge=1, description="Arms trained at the same time, where the cluster has room")
    workers: int = Field(1, ge=1, description="Processes per training group")


class FinetuneConfig(Arms):
    """The toy data set's small editor: its base is trained here, then every arm with the same steps."""

    base_caveat: ClassVar[str] = "The base editor stands in for a pretrained one and was trained on a noisy set of its own."

    editor: EditorConfig = Field(EditorConfig(), description="Codec, text encoder, denoiser, objective, sampler")
    base: BaseTraining = Field(BaseTraining(), description="Training of the base editor, in place of a pretrained one")
    training: EditorTrainingConfig = Field(EditorTrainingConfig(), description="Optimisation of every arm")

    @model_validator(mode="after")
    def _workers_share_a_batch(self) -> FinetuneConfig:
        for key, training in (("base.training", self.base.training), ("training", self.training)):
            if training.batch_size < self.workers:
                raise ValueError(
                    f"{key}.batch_size is {training.batch_size}, but workers is {self.workers}, and each worker needs a sample of "
                    "every batch; raise the first or lower the second"
                )
        return self


class EncodeConfig(Config):
    """Encoding of pairs before training, once for all arms."""

    ratio_difference: float = Field(
        0.02, ge=0, description="Pairs whose aspect ratios differ by more are set aside, since nothing is stretched"
    )
    unit_pairs: int = Field(32, ge=1, description="Pairs of a unit of work; their entries are in memory together")
    workers: int = Field(1, ge=1, description="Ray actors; each has the encoders in memory")


class LargeFinetuneConfig(Arms):
    """A pretrained editor: pairs are encoded once, then every arm trains from the same weights."""

    editor: PretrainedEditorConfig = Field(description="The base editor: its family and its files")
    encode: EncodeConfig = Field(EncodeConfig(), description="Encoding of pairs before training")
    flow: FlowSetting = Field(RectifiedFlowConfig(), description="Times and dropped conditions in training, or the name of such a setting")
    training: LargeTrainingConfig = Field(LargeTrainingConfig(), description="Optimisation of every arm")
    parallel_arms: int = Field(1, ge=1, description="Arms trained at the same time, where the cluster has room")

    @model_validator(mode="after")
    def _workers_divide_the_batch(self) -> LargeFinetuneConfig:
        if self.training.batch_size % self.workers:
            raise ValueError(
                f"training.batch_size is {self.training.batch_size}, which workers ({self.workers}) does not divide; change one of them"
            )
        return self


def _size(value: Any) -> str:
    """Which of the two classes a section is: a large editor names its family."""
    editor = value.get("editor") if isinstance(value, dict) else getattr(value, "editor", None)
    family = editor.get("family") if isinstance(editor, dict) else getattr(editor, "family", None)
    return (FinetuneConfig if family is None else LargeFinetuneConfig).__name__


_Small = Annotated[FinetuneConfig, Tag(FinetuneConfig.__name__)]
_Large = Annotated[LargeFinetuneConfig, Tag(LargeFinetuneConfig.__name__)]
FinetuneSection = Annotated[_Small | _Large, Discriminator(_size)]
"""The section finetune: `editor.family` chooses a large editor."""
