"""Configuration of the filter: composes what gates, decontamination, selections and shards own."""

from __future__ import annotations

from pydantic import Field, model_validator

from reward.config import TOKEN_BUDGET
from stages.contamination.config import ContaminationConfig
from stages.datasets.config import EditsInput
from stages.engine.config import Config
from stages.filter.gates.config import GatesConfig
from stages.filter.selection.config import SelectionConfig
from stages.shards.config import ShardsConfig


class FilterConfig(Config):
    """Score once, select, write shards (paper 4.4)."""

    input: EditsInput = Field(description="The noisy edits")
    model: str | None = Field(None, description="Reward model directory; default: the one trained in this run")
    selections: tuple[SelectionConfig, ...] = Field(min_length=1, description="What to keep; each becomes a set of shards")
    gates: GatesConfig = Field(GatesConfig(), description="Checks before scoring (docs/gates.md)")
    contamination: ContaminationConfig = Field(ContaminationConfig(), description="Edits whose sources a benchmark or the model knows")
    shards: ShardsConfig = Field(ShardsConfig(), description="Shard layout")
    token_budget: int = Field(TOKEN_BUDGET, ge=1, description="Tokens in one forward pass, formed inside a unit")
    unit_rows: int = Field(500, ge=1, description="Edits per unit of resume")
    inspect_workers: int | None = Field(
        None,
        ge=1,
        description="Ray actors that inspect and write shards; default: one per core, at least half as many beside GPUs",
    )
    workers: int | None = Field(None, ge=1, description="Ray actors that score; default: one per GPU, without GPUs one per core")
    num_gpus: float = Field(0.0, ge=0, description="GPUs per scoring actor; 0: one each, or an even share where there are fewer GPUs")
    prepare_workers: int | None = Field(
        None, ge=0, description="Tasks per slice in flight that read, decode and resize; 0: its actor does; default: 2 with GPUs, else 0"
    )
    note: str = Field("", description="Remark shown wherever these scores are shown")

    @model_validator(mode="after")
    def _distinct_names(self) -> FilterConfig:
        names = [selection.name for selection in self.selections]
        if len(set(names)) < len(names):
            raise ValueError(f"two selections have the same name: {', '.join(sorted(names))}")
        for place, selection in enumerate(self.selections):
            if selection.like is not None and selection.like not in names[:place]:
                raise ValueError(f"selection {selection.name} is like {selection.like}, which is not listed before it")
        return self
