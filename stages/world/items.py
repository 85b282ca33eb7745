"""Items: a scene, an edit of it and the exact result, named by (seed, split, index).

Splits are disjoint by construction: what a source scene shows (texture phase and position jitter aside) is hashed to
one split, the same for every seed, and a split only draws scenes of its own. (An edit may lead to a scene that another
split could draw as a source.)
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from stages.world.edits import KINDS, SceneEdit, apply, instruction, sample_edit
from stages.world.scenes import SMALL, Scene, sample_scene
from stages.world.seeds import generator, uniform

SHARES: dict[str, float] = {
    "train": 0.24,
    "validation": 0.10,
    "noisy": 0.20,
    "base": 0.18,
    "caption": 0.18,
    "benchmark": 0.10,
}
"""Share of the 4.9 million different scenes that each split may draw from."""
SPLITS = tuple(SHARES)
_BOUNDS = tuple(accumulate(SHARES.values()))


@dataclass(frozen=True)
class Item:
    """One editing task with its exact answer. ``kind`` is the task name of a source."""

    seed: int
    split: str
    index: int
    kinds: tuple[str, ...]  # kinds it was drawn from
    jitter: float
    scene: Scene
    edit: SceneEdit
    target: Scene
    instruction: str
    kind: str


def canonical(scene: Scene) -> str:
    """What a scene shows as text; equal for scenes that differ only in texture phase or position jitter."""
    things = sorted(f"{o.quadrant}{o.shape}{o.colour}{'s' if o.radius == SMALL else 'l'}" for o in scene.objects)
    return ",".join((scene.background, scene.texture, *things))


def bucket_of(scene: Scene) -> str:
    """The only split that may contain this scene."""
    return SPLITS[min(bisect_right(_BOUNDS, uniform("split", canonical(scene))), len(SPLITS) - 1)]


def item(seed: int, split: str, index: int, kinds: Sequence[str] = KINDS, jitter: float = 0.0) -> Item:
    """The item of that name; its scene does not depend on ``kinds``."""
    assert split in SHARES, split
    assert kinds and set(kinds) <= set(KINDS), kinds
    rng = generator("item", seed, split, index)
    scene = sample_scene(rng, jitter)
    while bucket_of(scene) != split:
        scene = sample_scene(rng, jitter)
    edit = sample_edit(rng, scene, kinds)
    words = instruction(edit, scene)
    return Item(seed, split, index, tuple(kinds), jitter, scene, edit, apply(scene, edit), words, edit.kind)


def to_metadata(item: Item) -> str:
    """The item's name as JSON text, for the metadata column of a table."""
    name = {"seed": item.seed, "split": item.split, "index": item.index, "kinds": item.kinds, "jitter": item.jitter}
    return json.dumps(name, sort_keys=True)


def from_metadata(text: str) -> Item:
    """The item that ``to_metadata`` named."""
    return item(**json.loads(text))
