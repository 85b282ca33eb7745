"""Configuration of the evaluation of the reward model."""

from __future__ import annotations

from pydantic import Field, model_validator

from reward.benchmarks.names import BenchmarkName  # noqa: TID253  # names only, nothing heavy
from stages.engine.config import Config


class BenchmarkConfig(Config):
    """A published benchmark, read from a local copy in its own layout (docs/benchmarks.md)."""

    name: BenchmarkName = Field(description="Which benchmark")
    path: str = Field(description="Folder of the local copy")
    revision: str = Field(min_length=1, description="Revision of the copy, e.g. its Hub commit; recorded beside the figures")


class EvaluateRewardConfig(Config):
    """Held-out evaluation of the reward model, and published benchmarks where a copy is available."""

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
