"""The built-in toy data set: sources to edit (``world``), and synthetic edits of which half are flawed on purpose (``world-edits``).

Its metadata says which edits are flawed and how. No scene is a source in two splits; an edit may lead to a scene that
another split has as a source.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from stages.datasets.config import WorldConfig, WorldEdits, WorldSources
from stages.datasets.slices import Edit, Numbers, Request, Slice, position
from stages.engine import images, storage
from stages.world import editors, flaws, items
from stages.world.scenes import render

if TYPE_CHECKING:
    from finetune.data import EditSamples

SOURCES, EDITS = "world", "world-edits"
GOOD_LEVEL = 3
"""An edit is good when it is at least at this level (of 4) in both dimensions."""


def plan(config: WorldSources | WorldEdits, request: Request) -> list[Slice]:
    """Slices of item numbers; of sources those of the training split come first."""
    if request.world is None:
        raise ValueError(f"{request.key}: dataset {config.dataset} is drawn and needs the section world in the configuration")
    drawing = request.world.model_dump(mode="json")
    if isinstance(config, WorldEdits):
        shared = {"seed": request.seed, "split": config.split, "drawing": drawing} | config.model_dump(include={"flaws"}, mode="json")
        place, ends = storage.absolute(""), range(0, config.count, request.unit_rows)
        return [Slice(EDITS, place, shared, Numbers(first, min(first + request.unit_rows, config.count))) for first in ends]
    slices = []
    for split, count in (("train", config.train), ("validation", config.validation)):
        shared = {"seed": request.seed, "split": split, "drawing": drawing}
        for first in range(0, count, request.unit_rows):
            rows = Numbers(first, min(first + request.unit_rows, count))
            content = shared | {"dataset": SOURCES, "first": first, "count": len(rows)}
            slices.append(Slice(SOURCES, "", shared, rows, content=content))
    return slices


def fetch(piece: Slice) -> Iterator[Edit]:
    """Draw the rows."""
    drawing = WorldConfig(**piece.shared["drawing"])
    for number, _ in piece.rows:
        item = _item(piece.shared["seed"], piece.shared["split"], number, drawing)
        if piece.dataset == SOURCES:
            source, edited, metadata, split = render(item.scene, drawing.size), b"", items.to_metadata(item), item.split
        else:
            source, made = _noisy(item, drawing, piece.shared)
            edited, metadata, split = images.png(made.image), flaws.to_metadata(made), ""
        yield Edit(
            row_id=str(number),
            position=position(f"{piece.dataset}/{item.split}", number),
            dataset=piece.dataset,
            source=images.png(source),
            source_path=None,
            instruction=item.instruction,
            edited=edited,
            task=item.kind,
            licence="drawn by this program",
            metadata=metadata,
            split=split,
        )


def good(metadata: Sequence[str]) -> np.ndarray:
    """Which edits are good in both dimensions by their ground-truth quality, bool [n]."""
    levels = [json.loads(text) for text in metadata]
    return np.array([min(level["instruction_following"], level["visual_quality"]) >= GOOD_LEVEL for level in levels], dtype=bool)


def samples(config: WorldEdits, *, seed: int, world: WorldConfig | None, image_size: int) -> EditSamples:
    """All edits of a set as arrays in memory, to train an editor on. Images of another size than ``image_size`` are resized (bicubic)."""
    from finetune.data import EditSamples

    source, edited, instructions, sample_ids = [], [], [], []
    for piece in plan(config, Request(config.count, "finetune.base.edits", seed=seed, world=world)):
        drawing = WorldConfig(**piece.shared["drawing"])
        for number, _ in piece.rows:
            item = _item(seed, config.split, number, drawing)
            before, made = _noisy(item, drawing, piece.shared)
            source.append(_resized(before, image_size))
            edited.append(_resized(made.image, image_size))
            instructions.append(item.instruction)
            sample_ids.append(f"{config.split}-{number}")
    return EditSamples(np.stack(source), np.stack(edited), instructions, sample_ids)


def _item(seed: int, split: str, number: int, drawing: WorldConfig) -> items.Item:
    return items.item(seed, split, number, kinds=drawing.kinds, jitter=drawing.jitter)


def _noisy(item: items.Item, drawing: WorldConfig, shared: Mapping[str, Any]) -> tuple[np.ndarray, flaws.Made]:
    """Source uint8 [size, size, 3] and noisy edit of an item."""
    renders = flaws.renders_of(item, drawing.size)
    return renders.source, editors.noisy_edit(item, drawing.size, renders, shared.get("flaws", flaws.FLAWS))


def _resized(pixels: np.ndarray, size: int) -> np.ndarray:
    if pixels.shape[:2] == (size, size):
        return pixels
    return np.asarray(Image.fromarray(pixels).resize((size, size), Image.Resampling.BICUBIC))
