"""Examples for the warm-up from the toy world: sources, exact edits and their instructions, from scenes of their own."""

from __future__ import annotations

from reward import EditSample
from stages.config import WorldConfig
from stages.engine import images
from stages.world import items
from stages.world.scenes import render


def captioned(count: int, *, seed: int, world: WorldConfig | None) -> list[EditSample]:
    """The first `count` examples. Raises ValueError when the run has no toy world."""
    if world is None:
        raise ValueError(
            "reward.pretraining draws its examples from the toy world: add the section world, or set reward.pretraining.steps to 0"
        )
    drawn = (items.item(seed, "caption", index, kinds=world.kinds, jitter=world.jitter) for index in range(count))
    return [
        EditSample(images.png(render(item.scene, world.size)), item.instruction, images.png(render(item.target, world.size)))
        for item in drawn
    ]
