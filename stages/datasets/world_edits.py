"""The noisy edit set of the embedded world: half of its edits are flawed on purpose, and it knows which."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import numpy as np

from stages.config import WorldConfig
from stages.datasets.config import WorldEdits
from stages.datasets.slices import Edit, Slice, cut, position
from stages.engine import images
from stages.world import editors, flaws, items

DATASET = "world-edits"
GOOD_LEVEL = 3
"""An edit is good when it is at least at this level (of 4) in both dimensions."""


def plan(config: WorldEdits, *, seed: int, world: WorldConfig | None, unit_rows: int) -> list[Slice]:
    """Slices of item numbers."""
    if world is None:
        raise ValueError("edits of dataset world-edits are drawn: the configuration needs the section world")
    shared = {"seed": seed, "split": config.split, "drawing": world.model_dump(mode="json")}
    return cut(DATASET, "", shared, [None] * config.count, unit_rows)


def fetch(piece: Slice) -> Iterator[Edit]:
    """Draw the edits."""
    drawing = WorldConfig(**piece.shared["drawing"])
    for number, _ in piece.rows:
        item, source, made = draw(piece.shared["seed"], piece.shared["split"], number, drawing)
        truth = {
            "instruction_following": made.instruction_following_level,
            "visual_quality": made.visual_quality_level,
            "instruction_following_flaw": made.if_flaw,
            "visual_quality_flaw": made.vq_flaw,
        }
        yield Edit(
            row_id=str(number),
            position=position(f"{DATASET}/{item.split}", number),
            dataset=DATASET,
            source=images.png(source),
            source_path=None,
            instruction=item.instruction,
            edited=images.png(made.image),
            edited_path=None,
            language="en",
            task=item.kind,
            licence="drawn by this program",
            metadata=json.dumps(truth, sort_keys=True),
        )


def draw(seed: int, split: str, number: int, drawing: WorldConfig) -> tuple[items.Item, np.ndarray, flaws.Made]:
    """Item, source uint8 [size, size, 3] and noisy edit of a row."""
    item = items.item(seed, split, number, kinds=drawing.kinds, jitter=drawing.jitter)
    renders = flaws.renders_of(item, drawing.size)
    return item, renders.source, editors.noisy_edit(item, drawing.size, renders=renders)


def good(metadata: Sequence[str]) -> np.ndarray:
    """Which edits are good in both dimensions by their true levels, bool [n]."""
    levels = [json.loads(text) for text in metadata]
    return np.array([min(level["instruction_following"], level["visual_quality"]) >= GOOD_LEVEL for level in levels], dtype=bool)
