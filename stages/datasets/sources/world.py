"""Sources drawn by the embedded world: a scene and an instruction; the training and the validation split share no scene."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stages.config import WorldConfig, WorldSources
from stages.engine import images
from stages.engine.ids import content_id
from stages.world import items
from stages.world.scenes import render


def plan(config: WorldSources, *, seed: int, drawing: WorldConfig, rows: int) -> list[dict[str, Any]]:
    """Slices of item numbers, training first."""
    counts = {"train": config.train, "validation": config.validation}
    return [
        {
            "dataset": "world",
            "split": split,
            "first": first,
            "count": min(rows, count - first),
            "seed": seed,
            "drawing": drawing.model_dump(mode="json"),
        }
        for split, count in counts.items()
        for first in range(0, count, rows)
    ]


def load(piece: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Rows of the ``sources`` contract."""
    drawing = WorldConfig(**piece["drawing"])
    for index in range(piece["first"], piece["first"] + piece["count"]):
        item = items.item(piece["seed"], piece["split"], index, kinds=drawing.kinds, jitter=drawing.jitter)
        image = images.png(render(item.scene, drawing.size))
        group = content_id("group", image)
        yield {
            "source_id": content_id("source", image, item.instruction),
            "dataset": "world",
            "split": piece["split"],
            "group": group,
            "image": images.stored(image),
            "instruction": item.instruction,
            "language": "en",
            "task": item.kind,
            "metadata": items.to_metadata(item),
        }
