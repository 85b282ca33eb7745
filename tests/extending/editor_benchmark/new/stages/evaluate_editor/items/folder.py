"""Photographs in a folder with an items.json: records {id, image, instruction, task, language}. No reference edits are known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from PIL import Image
from pydantic import Field

from stages.engine.config import Config
from stages.engine.ids import settings_hash
from stages.evaluate_editor.items.item import Item, ItemSource

if TYPE_CHECKING:
    from stages.config import FlowConfig


class FolderItems(ItemSource, Config):
    """Items of a folder."""

    name: Literal["folder"]
    path: str = Field(description="The folder")
    languages: tuple[str, ...] = Field(("en",), description="Languages to evaluate")

    def identity(self, flow: FlowConfig) -> dict[str, Any]:
        """The records."""
        return {"folder": settings_hash(self._records())}

    def count(self, flow: FlowConfig) -> int:
        """Of the languages."""
        return len(self._records())

    def read(self, flow: FlowConfig, first: int, count: int) -> list[Item]:
        """In the order of the file."""
        items = []
        for row in self._records()[first : first + count]:
            image = np.asarray(Image.open(Path(self.path) / row["image"]).convert("RGB"))
            items.append(Item(row["id"], image, row["instruction"], row["task"], row["language"]))
        return items

    def _records(self) -> list[dict[str, str]]:
        rows = json.loads((Path(self.path) / "items.json").read_text(encoding="utf-8"))
        return [row for row in rows if row["language"] in self.languages]
