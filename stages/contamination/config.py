"""Configuration of decontamination: what sources are compared with, and what happens to those that match."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from reward.benchmarks.names import BenchmarkName  # noqa: TID253  # names only, nothing heavy
from stages.datasets.config import CandidateEdits, Delivered, TableEdits
from stages.engine.config import Config

Counts = Literal["image", "image-and-instruction", "image-or-instruction"]


class ImageFolder(Config):
    """Images without instructions; a match is one of images only."""

    dataset: Literal["images"]
    path: str = Field(description="Folder (its PNG, JPEG and WebP files at any depth), an image, or a pattern such as test/**/*-input.png")


class BenchmarkItems(Config):
    """A published benchmark of reward models, read from a local copy in its own layout (docs/benchmarks.md)."""

    dataset: Literal["benchmark"]
    benchmark: BenchmarkName = Field(description="Which benchmark")
    path: str = Field(description="Folder of the local copy")


ReferenceInput = Annotated[TableEdits | ImageFolder | BenchmarkItems | CandidateEdits | Delivered, Field(discriminator="dataset")]


class Reference(Config):
    """Sources and instructions that should not be trained on, or that the reward model has seen."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$", description="Name in the list of hits, in the shards and in the report")
    input: ReferenceInput = Field(description="Where they are; tables may use the presets of benchmarks, which have no edited images")


class Comparison(Config):
    """Sources that occur in a reference."""

    action: Literal["keep", "drop"] = Field("keep", description="keep: list them; drop: list them and leave them out")
    references: tuple[Reference, ...] = Field((), description="What they are compared with")
    distance: int | None = Field(
        8, ge=0, le=16, description="Bits of 64 in which the perceptual hashes of the same picture may differ; null: equal bytes only"
    )
    counts: Counts = Field("image", description="Which match counts as contamination: equal instructions alone occur without any leak")

    @model_validator(mode="after")
    def _distinct_names(self) -> Self:
        names = [reference.name for reference in self.references]
        if len(set(names)) < len(names) or "training" in names:
            raise ValueError(f"references need different names, and training is taken: {', '.join(sorted(names))}")
        return self


class ContaminationConfig(Comparison):
    """Edits whose source or instruction occurs in a reference."""

    training: bool = Field(True, description="Compare with the sources that the reward model was trained on, where it names them")
