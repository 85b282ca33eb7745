"""Configuration of the whole flow, composed of what each folder owns; a YAML file reads like an experiment section.

Nothing heavier than pydantic is imported here, so that the command line's help is quick.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from stages.annotate.config import AnnotateConfig
from stages.datasets.config import WorldConfig
from stages.engine.config import BenchmarkName, Config, RayConfig
from stages.filter.config import FilterConfig
from stages.finetune.config import FinetuneConfig
from stages.generate.config import GenerateConfig
from stages.preferences.config import PreferencesConfig
from stages.train_reward.config import TrainRewardConfig


class BenchmarkConfig(Config):
    """A published benchmark, read from a local copy in its own layout (docs/benchmarks.md)."""

    name: BenchmarkName = Field(description="Which benchmark")
    path: str = Field(description="Folder of the local copy")
    revision: str = Field(min_length=1, description="Revision of the copy, e.g. its Hub commit; recorded beside the figures")


class EvaluateRewardConfig(Config):
    """Held-out evaluation of the reward model, and published benchmarks where a copy is at hand."""

    model: str | None = Field(None, description="Reward model directory; default: the one trained in this run")
    bootstrap: int = Field(1000, ge=100, description="Bootstrap resamples (clustered by source) for intervals")
    workers: int = Field(2, ge=1, description="Ray actors")
    unit_sources: int = Field(50, ge=1, description="Source groups per unit of resume")
    benchmarks: tuple[BenchmarkConfig, ...] = Field((), description="Benchmarks to score")
    compare_with: str | None = Field(None, description="Directory of another reward model to compare with on the benchmarks")

    @model_validator(mode="after")
    def _benchmarks_fit(self) -> EvaluateRewardConfig:
        names = [benchmark.name for benchmark in self.benchmarks]
        if len(set(names)) < len(names):
            raise ValueError(f"a benchmark is there twice: {', '.join(sorted(names))}")
        if self.compare_with is not None and not names:
            raise ValueError("compare_with compares two models on benchmarks: list benchmarks, or leave it out")
        return self


class EvaluateEditorConfig(Config):
    """Held-out benchmark of the base editor and of every arm."""

    items: int = Field(160, ge=2, description="Benchmark scenes")
    judge: Literal["world"] = Field("world", description="Who judges: the world's programmatic judge")
    reference_arm: str = Field("full", description="Arm that the differences are taken against")
    bootstrap: int = Field(10_000, ge=100, description="Paired bootstrap resamples")
    workers: int = Field(2, ge=1, description="Ray actors")


class FlowConfig(Config):
    """The whole flow."""

    name: str = Field(pattern=r"^\w[\w.-]*$", description="Name of the run: the default run directory is runs/<name>")
    seed: int = Field(0, ge=0, description="Seed of everything random; the seeds of models and trainings are counted from it")
    ray: RayConfig = Field(RayConfig(), description="Local Ray cluster")
    world: WorldConfig | None = Field(None, description="The built-in toy data set, where it is used")
    generate: GenerateConfig | None = Field(None, description="Candidates")
    annotate: AnnotateConfig = Field(AnnotateConfig(), description="Ratings")
    preferences: PreferencesConfig = Field(PreferencesConfig(), description="Preference pairs")
    reward: TrainRewardConfig = Field(TrainRewardConfig(), description="Reward model")
    evaluate_reward: EvaluateRewardConfig = Field(EvaluateRewardConfig(), description="Its evaluation")
    filter: FilterConfig | None = Field(None, description="Scoring, selection, shards")
    finetune: FinetuneConfig | None = Field(None, description="Editor arms")
    evaluate_editor: EvaluateEditorConfig | None = Field(None, description="Editor benchmark")
