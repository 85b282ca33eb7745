"""Configuration of the step generate."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, model_validator

from stages.datasets.config import CandidatesInput, SourcesInput
from stages.editors.config import OutputsConfig
from stages.engine.config import Config


class EditorChoice(Config):
    """One editor, its settings, and how many candidates it makes of each source."""

    name: str = Field(description="Name of the editor, e.g. world/quill; `pipeline editors` lists all")
    label: str | None = Field(
        None,
        min_length=1,
        description="What the draw, tables and reports call it; needed where an editor is listed with different settings. Default: name",
    )
    seeds: tuple[int, ...] = Field((), description="Seeds of its candidates, the same for every source; default: drawn per source")
    candidates: int | None = Field(
        None, ge=1, description="Candidates of each source, with drawn seeds; default: an even share of generate.candidates_per_source"
    )
    settings: dict[str, Any] = Field({}, description="Settings that differ from those of its authors")
    workers: int | None = Field(None, ge=1, description="Processes of this editor at a time; default: as many as have work")
    num_gpus: float | None = Field(None, ge=0, description="GPUs of one process; default: 1 where the editor needs one and there are any")

    @model_validator(mode="after")
    def _one_number(self) -> Self:
        if self.seeds and self.candidates is not None:
            raise ValueError(f"{self.name} has seeds and candidates: give the seeds, or how many are to be drawn")
        if wrong := [seed for seed in self.seeds if not 0 <= seed < 2**31]:
            raise ValueError(f"{self.name} has the seed {wrong[0]}: every library takes seeds from 0 to {2**31 - 1:,} only")
        return self


class FailureRules(Config):
    """What becomes of edits that fail. A failed edit costs one candidate."""

    tries: int = Field(
        1,
        ge=1,
        le=10,
        description="How often a candidate that fails is tried; raise it after a repair, and what failed is made again",
    )

    seconds: float = Field(1800.0, gt=0, description="A process that takes longer for one edit is ended; twice, and the candidate failed")
    share: float = Field(0.5, gt=0, le=1, description="An editor stops when a larger share of its edits failed in one process")
    after: int = Field(20, ge=1, description="So many edits are made before that share counts")
    stop_all: bool = Field(False, description="An editor that stops, or cannot be loaded, ends the command; default: the others go on")


class GenerateConfig(Config):
    """Candidates (paper 2.1: 12 per source, 7 annotated): every editor edits every source, or candidates made elsewhere are read."""

    sources: SourcesInput | None = Field(None, description="Where sources come from; default with editors: the toy world")
    editors: tuple[EditorChoice, ...] = Field((), description="Editors, with seeds or numbers of candidates")
    candidates_per_source: int | None = Field(
        None, ge=2, description="Candidates of each source by all editors; those without a number of their own share it evenly. Default: 12"
    )
    accept_licences: tuple[str, ...] = Field(
        (), description="Licences that do not allow every use, of editors that you may use nevertheless"
    )
    candidates: CandidatesInput | None = Field(None, description="Candidates made elsewhere, with their sources: in place of both")
    annotate: int = Field(
        7, ge=2, description="Candidates per source that are drawn for annotation, evenly over editors; of those made elsewhere at most"
    )
    split_distance: int | None = Field(
        8,
        ge=0,
        le=16,
        description="Bits of 64 in which the perceptual hashes of source images may differ that are in one split; null: equal bytes only",
    )
    outputs: OutputsConfig = Field(OutputsConfig(), description="Edits that the output checks flag")
    failures: FailureRules = Field(FailureRules(), description="Edits that fail")
    unit_sources: int = Field(
        150, ge=1, description="Sources that are read and published together; edits where candidates made elsewhere are read"
    )
    workers: int | None = Field(None, ge=1, description="Ray actors at a time; default: one per GPU where an editor needs one, at least 2")

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
