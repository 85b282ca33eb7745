"""The eight edit kinds: sampling one for a scene, applying it to the record, and saying it in words.

An instruction has at most five words when the function words (the, a, at, to, into) are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from stages.world.scenes import BACKGROUNDS, COLOURS, LARGE, QUADRANTS, SHAPES, SMALL, Scene, SceneObject, place
from stages.world.seeds import pick

KINDS = ("recolour", "remove", "background", "add", "replace", "resize", "move", "style")
ON_OBJECT = ("recolour", "remove", "replace", "resize", "move")
"""Kinds that name an object of the scene."""

TEMPLATES: dict[str, tuple[str, ...]] = {
    "recolour": ("make the {object} {value}", "change the {object} to {value}"),
    "remove": ("remove the {object}", "erase the {object}"),
    "background": ("change the background to {value}", "make the background {value}"),
    "add": ("add a {object} at the {value}", "put a {object} at the {value}"),
    "replace": ("turn the {object} into a {value}", "change the {object} into a {value}"),
    "resize": ("make the {object} {value}", "turn the {object} {value}"),
    "move": ("move the {object} to the {value}", "shift the {object} to the {value}"),
    "style": ("make the picture {value}", "turn the picture {value}"),
}


@dataclass(frozen=True)
class SceneEdit:
    """One change. ``value`` is the new colour, background, shape, size word, quadrant or style; empty for remove."""

    kind: str
    value: str
    subject: int | None = None  # index into scene.objects, for the kinds that name an object
    added: SceneObject | None = None  # for add
    wording: int = 0  # which template


def unused_colours(scene: Scene) -> list[str]:
    """Colours that no object of the scene has."""
    taken = {o.colour for o in scene.objects}
    return [c for c in COLOURS if c not in taken]


def unused_shapes(scene: Scene) -> list[str]:
    """Shapes that no object of the scene has."""
    taken = {o.shape for o in scene.objects}
    return [s for s in SHAPES if s not in taken]


def free_quadrants(scene: Scene) -> list[int]:
    """Quadrants without an object."""
    taken = {o.quadrant for o in scene.objects}
    return [q for q in range(4) if q not in taken]


def other_values(edit: SceneEdit, scene: Scene) -> list[str]:
    """Values other than its own that an edit of this kind and subject could have; each gives another picture."""
    match edit.kind:
        case "recolour":
            values = unused_colours(scene)
        case "background":
            values = [b for b in BACKGROUNDS if b != scene.background]
        case "replace":
            values = unused_shapes(scene)
        case "move" | "add":
            values = [QUADRANTS[q] for q in free_quadrants(scene)]
        case "style":
            values = ["gray", "sepia"]
        case _:  # remove has no value, and an object of two sizes can only be resized in one direction
            return []
    return [v for v in values if v != edit.value]


def sample_edit(rng: np.random.Generator, scene: Scene, kinds: Sequence[str] = KINDS) -> SceneEdit:
    """A random edit that changes the scene, its kind drawn evenly from ``kinds``."""
    kind = pick(rng, kinds)
    wording = int(rng.random() * len(TEMPLATES[kind]))
    subject = int(rng.random() * len(scene.objects)) if kind in ON_OBJECT else None
    if kind == "remove":
        return SceneEdit(kind, "", subject, None, wording)
    if kind == "resize":
        assert subject is not None
        value = "bigger" if scene.objects[subject].radius < (SMALL + LARGE) / 2 else "smaller"
        return SceneEdit(kind, value, subject, None, wording)
    value = pick(rng, other_values(SceneEdit(kind, "", subject), scene))
    if kind != "add":
        return SceneEdit(kind, value, subject, None, wording)
    quadrant = QUADRANTS.index(value)
    shape, colour, radius = pick(rng, unused_shapes(scene)), pick(rng, unused_colours(scene)), pick(rng, (SMALL, LARGE))
    return SceneEdit(kind, value, None, SceneObject(shape, colour, quadrant, *place(quadrant), radius), wording)


def apply(scene: Scene, edit: SceneEdit) -> Scene:
    """The scene after the edit; its picture is the exact edit."""
    if edit.kind == "background":
        return replace(scene, background=edit.value)
    if edit.kind == "style":
        return replace(scene, style=edit.value)
    if edit.kind == "add":
        assert edit.added is not None
        return replace(scene, objects=(*scene.objects, edit.added))
    assert edit.subject is not None
    match edit.kind:
        case "remove":
            return replace(scene, objects=scene.objects[: edit.subject] + scene.objects[edit.subject + 1 :])
        case "recolour":
            return with_object(scene, edit.subject, colour=edit.value)
        case "replace":
            return with_object(scene, edit.subject, shape=edit.value)
        case "resize":
            return with_object(scene, edit.subject, radius=LARGE if edit.value == "bigger" else SMALL)
        case _:
            assert edit.kind == "move", edit.kind
            quadrant = QUADRANTS.index(edit.value)
            x, y = place(quadrant)
            return with_object(scene, edit.subject, quadrant=quadrant, x=x, y=y)


def with_object(scene: Scene, index: int, **changes: object) -> Scene:
    """The scene with another look or place of one object."""
    objects = list(scene.objects)
    objects[index] = replace(objects[index], **changes)
    return replace(scene, objects=tuple(objects))


def instruction(edit: SceneEdit, scene: Scene) -> str:
    """The edit in words, e.g. "make the red circle blue"."""
    thing = edit.added if edit.subject is None else scene.objects[edit.subject]
    name = f"{thing.colour} {thing.shape}" if thing else ""
    return TEMPLATES[edit.kind][edit.wording].format(object=name, value=edit.value)
