"""Configuration of the editor's benchmark: the tables of its benchmarks and judges."""

from __future__ import annotations

from pydantic import Field, model_validator

from stages.engine.config import Config
from stages.evaluate_editor.items.world import WorldItems
from stages.evaluate_editor.judges.world import WorldJudge

Items = WorldItems
"""Benchmarks of the editor: the union of their configuration classes."""
Judges = WorldJudge
"""Judges: the union of their configuration classes."""


class EvaluateEditorConfig(Config):
    """Held-out benchmark of the base editor and of every arm."""

    items: Items = Field(WorldItems(160), description="Benchmark items; a number draws that many scenes of the toy data set")
    judge: Judges = Field(WorldJudge("world"), description="Who judges; world: the program that knows the toy data set's exact edits")
    reference_arm: str = Field("full", description="Arm that the differences are taken against")
    bootstrap: int = Field(10_000, ge=100, description="Paired bootstrap resamples")
    workers: int = Field(2, ge=1, description="Ray actors")

    @model_validator(mode="after")
    def _judge_fits(self) -> EvaluateEditorConfig:
        if self.judge.needs_reference and not self.items.has_references:
            raise ValueError(f"the judge {self.judge.name} compares with the exact edit, which these items do not have; name another judge")
        return self
