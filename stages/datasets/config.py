"""Configuration of data sets: one class per kind, for sources, edits and references alike (docs/your-data.md shows one of each).

The docstring of each reader in stages/datasets/ says what files it expects.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, SerializerFunctionWrapHandler, model_serializer

from stages.datasets.presets import known
from stages.engine.config import Config

EditKind = Literal["recolour", "remove", "background", "add", "replace", "resize", "move", "style"]
ALL_KINDS: tuple[EditKind, ...] = ("recolour", "remove", "background", "add", "replace", "resize", "move", "style")
VALIDATION_SHARE = 0.1
"""Share of source images held out where neither the configuration nor the data set says it."""


Flaw = Literal[
    "ghost", "side-resize", "wrong-value", "over-edit", "half", "no-op", "wrong-object", "wrong-kind", "unrelated",
    "noise", "blur", "jpeg", "seam", "cast",
]  # fmt: skip
ALL_FLAWS: tuple[Flaw, ...] = (
    "ghost", "side-resize", "wrong-value", "over-edit", "half", "no-op", "wrong-object", "wrong-kind", "unrelated",
    "noise", "blur", "jpeg", "seam", "cast",
)  # fmt: skip


def _needed(flaws: tuple[Flaw, ...]) -> tuple[Flaw, ...]:
    """Every level below 4 needs a flaw that can always be made (stages/world/flaws.py)."""
    for level in (("ghost", "side-resize"), ("over-edit", "half"), ("no-op", "wrong-kind", "unrelated"), ALL_FLAWS[9:]):
        if not set(level) & set(flaws):
            raise ValueError(f"at least one of {', '.join(level)} is needed")
    return flaws


Flaws = Annotated[tuple[Flaw, ...], AfterValidator(_needed)]


class _Drawn(Config):
    """What simulated editors draw. All flaws are left out of the plain form, so that what was made before there was a choice stays."""

    flaws: Flaws = Field(ALL_FLAWS, description="Flaws that occur in the edits")

    @model_serializer(mode="wrap")
    def _plain(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in plain(self).items() if name != "flaws" or tuple(value) != ALL_FLAWS}


class WorldConfig(_Drawn):
    """The built-in toy data set: what it draws. ``flaws``: of the candidates."""

    size: int = Field(32, ge=16, description="Side of the images in pixels")
    kinds: tuple[EditKind, ...] = Field(ALL_KINDS, min_length=1, description="Edit kinds that occur")
    jitter: float = Field(0.0, ge=0, description="Jitter of object positions in world units (the image is 32 units wide)")


class WorldSources(Config):
    """Sources drawn by the toy world."""

    dataset: Literal["world"]
    train: int = Field(1200, ge=2, description="Source groups to rate for training")
    validation: int = Field(150, ge=2, description="Held-out source groups")


class WorldEdits(_Drawn):
    """A set of synthetic edits drawn by the toy world, half of them flawed, in place of a delivered data set."""

    dataset: Literal["world-edits"]
    count: int = Field(6000, ge=10, description="Edits")
    split: Literal["noisy", "base"] = Field("noisy", description="Split of the scenes that are edited")


class ShareGPT4oEdits(Config):
    """FreedomIntelligence/ShareGPT-4o-Image's edit split as downloaded: one JSON list and tars."""

    dataset: Literal["sharegpt4o"]
    path: str = Field(description="Folder (or URL) with text_and_image_to_image.json and text_and_image_to_image_part_*.tar")


class TripletEdits(Config):
    """A folder of your own: a JSON Lines file of (source, instruction, edited) and the images beside it."""

    dataset: Literal["triplets"]
    path: str = Field(description="The .jsonl file; image paths in it are relative to its folder")


class TableColumns(Config):
    """Names of a table's columns; what is left out is named by the preset, or has the role's own name."""

    source: str | None = Field(None, description="Source image")
    instruction: str | None = Field(None, description="Instruction: text, or a list of wordings of which the first counts")
    edited: str | None = Field(None, description="Edited image")
    id: str | None = Field(None, description="Id of the row; default: its number")
    task: str | None = Field(None, description="Kind of edit")
    language: str | None = Field(None, description="Language of the instruction")
    licence: str | None = Field(None, description="Licence of the row")


class CandidateColumns(TableColumns):
    """The same of a table of candidates made elsewhere."""

    editor: str | None = Field(None, description="Editor that made the edit")
    seed: str | None = Field(None, description="Its seed; without one, the edits of an editor for a source are numbered from 0")


TablePreset = Annotated[str, AfterValidator(known)]


class Table(Config):
    """Tables with a column per role: Parquet (images embedded, or as paths), JSON Lines, JSON, CSV or TSV."""

    path: str = Field(description="A file, a folder (its Parquet files at any depth) or a pattern such as data/train-*.parquet")
    preset: TablePreset | None = Field(None, description="Columns as published; default: source (of sources: image), instruction, edited")
    columns: TableColumns = Field(TableColumns(), description="Columns with other names")
    images: str | None = Field(None, description="Folder (or URL) that image paths are relative to; default: that of their file")
    licence: str = Field("", description="Licence of rows that name none")


class TableEdits(Table):
    """A table of edits."""

    dataset: Literal["table"]


class CandidateTable(Table):
    """A table of edits with the editor of each."""

    dataset: Literal["table"]
    columns: CandidateColumns = Field(CandidateColumns(), description="Columns with other names")


class SourceTable(Table):
    """A table of sources, with the columns image, instruction and optionally id, task, language, split."""

    name: str = Field(description="Name of the data set")
    expected: int | None = Field(None, ge=1, description="Rows it should have; another number is refused")


class TableSources(Config):
    """Sources of your own."""

    dataset: Literal["table"]
    tables: tuple[SourceTable, ...] = Field(min_length=1, description="The tables, in order")
    validation_share: float = Field(VALIDATION_SHARE, gt=0, lt=1, description="Share of split groups held out where a row names no split")


class EditRewardDataEdits(Config):
    """TIGER-Lab/EditReward-Data as downloaded: Parquet files of rated pairs; each candidate is an edit, once."""

    dataset: Literal["editreward-data"]
    path: str = Field(description="Folder (or URL) of the Parquet files, at any depth, or a pattern")


class ReferenceJsonEdits(Config):
    """The training JSON of the public EditReward code: a list with a record per rated pair; each candidate is an edit, once."""

    dataset: Literal["reference-json"]
    path: str = Field(description="The JSON file, such as train.json of `pipeline export pairs --format reference-json`")
    validation: str | None = Field(
        None, description="A second one beside it, whose sources are held out; default: the split by source image"
    )
    images: str | None = Field(None, description="Folder (or URL) that image paths are relative to; default: that of the JSON file")
    licence: str = Field("", description="Licence of the edits, of which the layout says nothing")


class WebdatasetEdits(Config):
    """Tars of samples in webdataset's layout, such as the shards of this program: <key>.<source>.png, <key>.<edited>.png, <key>.json."""

    dataset: Literal["webdataset"]
    path: str = Field(description="Folder (its *.tar files at any depth), a tar, or a pattern")
    source: str = Field("source", description="Field of the source image: what follows the key, with or without the extension")
    edited: str | tuple[str, ...] = Field(
        "edited", min_length=1, description="Field of the edited image; a list: each sample has an edit per field"
    )
    text: str = Field("json", description="Field of the text: a JSON object, or the instruction itself")
    instruction: str = Field("instruction", description="Key of the instruction in the JSON object")
    licence: str = Field("", description="Licence of samples that name none")


class CandidateEdits(Config):
    """Candidates that the step generate of a run made: to score them, also for the best of N, or to rate them in another run."""

    dataset: Literal["candidates"]
    path: str = Field(description="The run directory")


Delivered = ShareGPT4oEdits | TripletEdits | EditRewardDataEdits | ReferenceJsonEdits | WebdatasetEdits
"""Data sets of edits that are sources and references as well."""

SourcesInput = Annotated[WorldSources | TableSources | Delivered, Field(discriminator="dataset")]
CandidatesInput = Annotated[CandidateTable | CandidateEdits | Delivered, Field(discriminator="dataset")]
EditsInput = Annotated[WorldEdits | TableEdits | CandidateEdits | Delivered, Field(discriminator="dataset")]
