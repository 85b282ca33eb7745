"""Configuration of the step generate."""

from __future__ import annotations

from pydantic import Field

from stages.datasets.config import SourcesInput, WorldSources
from stages.engine.config import Config


class EditorChoice(Config):
    """One editor and its seeds."""

    name: str = Field(description="Name of the editor, e.g. world/quill")
    seeds: tuple[int, ...] = Field((0, 1), min_length=1, description="One candidate per seed")


class GenerateConfig(Config):
    """Candidates: every editor edits every source (paper 2.1: 12 candidates, 7 annotated)."""

    sources: SourcesInput = Field(WorldSources(dataset="world"), description="Where sources come from")
    editors: tuple[EditorChoice, ...] = Field(min_length=1, description="Editors and their seeds")
    annotate: int = Field(7, ge=2, description="Candidates per source that are sampled for annotation")
    unit_sources: int = Field(150, ge=1, description="Sources per unit of resume")
    workers: int = Field(2, ge=1, description="Ray actors")
