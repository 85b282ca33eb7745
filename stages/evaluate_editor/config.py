"""Configuration of the editor's benchmark: the tables of its benchmarks and judges."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag, model_validator

from stages.engine.config import Config
from stages.evaluate_editor.items.gedit_bench import GEditBench
from stages.evaluate_editor.items.imgedit_bench import ImgEditBench
from stages.evaluate_editor.items.world import WorldItems
from stages.evaluate_editor.judges.endpoint import EndpointJudge
from stages.evaluate_editor.judges.local import LocalJudge
from stages.evaluate_editor.judges.world import WorldJudge

NamedItems = GEditBench | ImgEditBench
"""Benchmarks of the editor that have settings: the union of their configuration classes."""
NamedJudges = EndpointJudge | LocalJudge
"""Judges that have settings: the union of their configuration classes."""


def _form(given: Any) -> str:
    """A table with settings, or one plain value."""
    return "plain" if isinstance(given, (int, str, WorldItems, WorldJudge)) else "table"


Items = Annotated[
    Annotated[WorldItems, Tag("plain")] | Annotated[NamedItems, Field(discriminator="name"), Tag("table")], Discriminator(_form)
]
Judges = Annotated[
    Annotated[WorldJudge, Tag("plain")] | Annotated[NamedJudges, Field(discriminator="name"), Tag("table")], Discriminator(_form)
]


class FurtherEditor(Config):
    """An editor that is compared with the trained ones."""

    editor: str = Field(description="Its name in the list of editors")
    name: str | None = Field(None, pattern=r"^\w[\w.-]*$", description="Name in the table; default: the editor's")
    settings: dict[str, Any] = Field({}, description="Settings of the editor that differ from its defaults")


class EditsFolder(Config):
    """Edits that were made elsewhere, in the layout in which the benchmark publishes results."""

    name: str = Field(pattern=r"^\w[\w.-]*$", description="Name in the table")
    path: str = Field(description="The system's folder: GEdit-Bench: it has fullset/<task>/<language>/<key>.png; ImgEdit-Bench: <key>.png")


class Measure(Config):
    """A measure of yours that is averaged beside PSNR and SSIM: LPIPS, DINO, likeness of faces."""

    name: str = Field(pattern=r"^\w[\w.-]*$", description="Name in the table")
    function: str = Field(
        pattern=r"^[\w.]+:[\w.]+$",
        description="module:function, importable in the workers; of source, edited (uint8 [height, width, 3]) and the changed region (bool "
        "[height, width]) to a number, or None where it has none",
    )
    version: str = Field("", description="Another one measures again; change it with the function or its weights")


class RewardScores(Config):
    """Scores of the edits by a reward model, beside the judges'. It chose the training data, so it is marked as not independent."""

    model: str | None = Field(None, description="Reward model directory; default: the one trained in this run")


class EvaluateEditorConfig(Config):
    """Held-out benchmark of the base editor, of every arm, and of other editors."""

    items: Items = Field(WorldItems(160), description="Benchmark items; a number draws that many scenes of the toy data set")
    judge: Judges = Field(
        WorldJudge("world"),
        description="Who judges; world, the default for the toy data set: the program that knows its exact edits; endpoint, the default "
        "for other benchmarks: a vision-language model behind an API",
    )
    further_judges: tuple[Judges, ...] = Field((), description="Others who judge the same edits, each in a table of its own")
    editors: tuple[FurtherEditor, ...] = Field((), description="Editors beside the trained ones")
    edits: tuple[EditsFolder, ...] = Field((), description="Edits of other systems, to be judged here")
    measures: tuple[Measure, ...] = Field((), description="Measures of yours, averaged per system")
    reward: RewardScores | None = Field(None, description="A reward model that scores the edits, too; {}: the one trained in this run")
    reference_arm: str = Field("full", description="System that the differences are taken against")
    bootstrap: int = Field(10_000, ge=100, description="Paired bootstrap resamples")
    seed: int = Field(0, ge=0, description="Seed of the edits' starting noise, together with the item")
    workers: int = Field(2, ge=1, description="Ray actors")

    @model_validator(mode="before")
    @classmethod
    def _default_judge(cls, given: Any) -> Any:
        """A benchmark with settings has photographs."""
        if isinstance(given, dict) and isinstance(given.get("items"), dict) and "judge" not in given:
            own = {"rubric": "imgedit"} if given["items"].get("name") == "imgedit-bench" else {}
            return given | {"judge": {"name": "endpoint"} | own}
        return given

    @model_validator(mode="after")
    def _judges_fit(self) -> EvaluateEditorConfig:
        revisions = [judge.revision for judge in (self.judge, *self.further_judges)]
        if len(set(revisions)) < len(revisions):
            raise ValueError("further_judges: two judges are the same; each is named once")
        if len({measure.name for measure in self.measures}) < len(self.measures):
            raise ValueError("measures: two have the same name; give each another")
        for judge in (self.judge, *self.further_judges):
            if judge.needs_reference and not self.items.has_references:
                raise ValueError(f"the judge {judge.name} compares with the exact edit, which these items do not have; name another judge")
        return self
