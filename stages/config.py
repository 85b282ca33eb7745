"""Configuration of the whole flow, composed of what each folder owns; a YAML file reads like an experiment section.

Nothing heavier than pydantic is imported here, so that the command line's help is quick.
"""

from __future__ import annotations

from pydantic import Field

from stages.annotate.config import AnnotateConfig
from stages.datasets.config import WorldConfig
from stages.engine.config import Config, RayConfig
from stages.evaluate_editor.config import EvaluateEditorConfig
from stages.evaluate_reward.config import EvaluateRewardConfig
from stages.filter.config import FilterConfig
from stages.finetune.config import FinetuneSection
from stages.generate.config import GenerateConfig
from stages.preferences.config import PreferencesConfig
from stages.train_reward.config import TrainRewardConfig


class FlowConfig(Config):
    """The whole flow."""

    name: str = Field(pattern=r"^\w[\w.-]*$", description="Name of the run: the default run directory is runs/<name>")
    seed: int = Field(
        0, ge=0, description="Seed of the run: toy data, draws for annotation, and an offset for the seeds of models and trainings"
    )
    ray: RayConfig = Field(RayConfig(), description="Local Ray cluster")
    world: WorldConfig | None = Field(None, description="The built-in toy data set, where it is used")
    generate: GenerateConfig | None = Field(None, description="Candidates")
    annotate: AnnotateConfig = Field(AnnotateConfig(), description="Ratings")
    preferences: PreferencesConfig = Field(PreferencesConfig(), description="Preference pairs")
    reward: TrainRewardConfig = Field(TrainRewardConfig(), description="Reward model")
    evaluate_reward: EvaluateRewardConfig = Field(EvaluateRewardConfig(), description="Its evaluation")
    filter: FilterConfig | None = Field(None, description="Scoring, selection, shards")
    finetune: FinetuneSection | None = Field(None, description="Editor arms")
    evaluate_editor: EvaluateEditorConfig | None = Field(None, description="Editor benchmark")
