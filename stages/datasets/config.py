"""Configuration of the edits that are filtered: one class per kind of data set (docs/your-data.md shows one of each).

Composed by stages/config.py. What each reader expects is told in its module in stages/datasets/.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from stages.engine.config import Config


class WorldEdits(Config):
    """A noisy edit set drawn by the embedded world, standing in for a delivered data set."""

    dataset: Literal["world-edits"]
    count: int = Field(6000, ge=10, description="Edits")
    split: Literal["noisy", "base"] = Field("noisy", description="Scene split they are drawn from")


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


TablePreset = Literal["omniedit", "gpt-image-edit", "imgedit", "pico-banana", "magicbrush", "gedit-bench", "imgedit-bench", "emu-edit"]


class TableEdits(Config):
    """Tables with a column per role: Parquet (images embedded, or as paths), JSON Lines, JSON, CSV or TSV."""

    dataset: Literal["table"]
    path: str = Field(description="A file, a folder (its Parquet files at any depth) or a pattern such as data/train-*.parquet")
    preset: TablePreset | None = Field(None, description="Columns as published; default: source, instruction, edited")
    columns: TableColumns = Field(TableColumns(), description="Columns with other names")
    images: str | None = Field(None, description="Folder (or URL) that image paths are relative to; default: that of their file")
    licence: str = Field("", description="Licence of rows that name none")


class EditRewardDataEdits(Config):
    """TIGER-Lab/EditReward-Data as downloaded: Parquet files of rated pairs; each candidate is an edit, once."""

    dataset: Literal["editreward-data"]
    path: str = Field(description="Folder (or URL) of the Parquet files, at any depth, or a pattern")


class WebdatasetEdits(Config):
    """Tars of samples in webdataset's layout, such as the shards of this program: <key>.<source>.png, <key>.<edited>.png, <key>.json."""

    dataset: Literal["webdataset"]
    path: str = Field(description="Folder (its *.tar files at any depth), a tar, or a pattern")
    source: str = Field("source", description="Field of the source image: what follows the key, with or without the extension")
    edited: str = Field("edited", description="Field of the edited image")
    text: str = Field("json", description="Field of the text: a JSON object, or the instruction itself")
    instruction: str = Field("instruction", description="Key of the instruction in the JSON object")
    licence: str = Field("", description="Licence of samples that name none")


class CandidateEdits(Config):
    """Candidates that the step generate of a run made: to score them, also for the best of N."""

    dataset: Literal["candidates"]
    path: str = Field(description="The run directory")


EditsInput = Annotated[
    WorldEdits | ShareGPT4oEdits | TripletEdits | TableEdits | EditRewardDataEdits | WebdatasetEdits | CandidateEdits,
    Field(discriminator="dataset"),
]
