"""What all configuration objects of this layer are."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

BenchmarkName = Literal["tiger-editreward-bench", "editscore-editreward-bench", "genai-bench", "aurora-pair", "aurora-point", "imagenhub"]
"""Published benchmarks of reward models that are read from local copies (docs/benchmarks.md)."""


class Config(BaseModel):
    """Base of the configurations of this layer: typed, frozen, no unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")
