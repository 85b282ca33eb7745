"""Configuration of the step generate."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, model_validator

from stages.datasets.config import CandidatesInput, SourcesInput
from stages.engine.config import Config


class EditorChoice(Config):
    """One editor and its seeds."""

    name: str = Field(description="Name of the editor, e.g. world/quill")
    seeds: tuple[int, ...] = Field((0, 1), min_length=1, description="One candidate per seed")


class GenerateConfig(Config):
    """Candidates (paper 2.1: 12 per source, 7 annotated): every editor edits every source, or candidates made elsewhere are read."""

    sources: SourcesInput | None = Field(None, description="Where sources come from; default with editors: the toy world")
    editors: tuple[EditorChoice, ...] = Field((), description="Editors and their seeds")
    candidates: CandidatesInput | None = Field(None, description="Candidates made elsewhere, with their sources: in place of both")
    annotate: int = Field(7, ge=2, description="Candidates per source that are sampled for annotation; of those made elsewhere at most")
    split_distance: int | None = Field(
        8,
        ge=0,
        le=16,
        description="Bits of 64 in which the perceptual hashes of source images may differ that are in one split, of candidates made "
        "elsewhere; null: equal bytes only",
    )
    unit_sources: int = Field(150, ge=1, description="Sources per unit of resume; edits where candidates made elsewhere are read")
    workers: int = Field(2, ge=1, description="Ray actors")

    @model_validator(mode="before")
    @classmethod
    def _sources_of_the_toy_world(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("candidates") is None and data.get("sources") is None:
            return data | {"sources": {"dataset": "world"}}
        return data

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if self.candidates is not None and (self.sources is not None or self.editors):
            raise ValueError("candidates made elsewhere bring their sources and editors: leave out sources and editors, or candidates")
        if self.candidates is None and not self.editors:
            raise ValueError("there are no candidates: name editors, or under candidates the edits that were made elsewhere")
        return self
