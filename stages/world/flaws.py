"""Flaws along the two dimensions, and the flawed edit of an item that they make.

Instruction following is damaged in the scene (or by mixing exact edit and source), visual quality in the pixels; the
two are independent. Levels are those of the raters' scale, 4 (exact, clean) to 1. Lengths are in world units except for
noise (grain of one pixel) and JPEG (blocks of eight), which look finer in a larger picture.
"""

from __future__ import annotations

import io
import json
from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
from PIL import Image, ImageFilter

from stages.world.edits import KINDS, ON_OBJECT, SceneEdit, apply, other_values, sample_edit, unused_colours, unused_shapes, with_object
from stages.world.items import Item, bucket_of
from stages.world.scenes import WORLD, Scene, render, sample_scene
from stages.world.seeds import pick

NOISE = {3: 14.0, 2: 30.0, 1: 60.0}  # standard deviation
BLUR = {3: 0.55, 2: 0.95, 1: 1.8}  # standard deviation in world units
JPEG = {3: 28, 2: 9, 1: 2}  # quality
SEAM = {3: 18.0, 2: 40.0, 1: 80.0}  # brightness of a box outline; its inside gets 0.35 of it
CAST = {3: 16.0, 2: 34.0, 1: 66.0}  # shift of the channels, two signs
ARTEFACTS = ("noise", "blur", "jpeg", "seam", "cast")
MISTAKES = {3: ("ghost", "side-resize"), 2: ("wrong-value", "over-edit", "half"), 1: ("no-op", "wrong-object", "wrong-kind", "unrelated")}
"""Flaws of instruction following, by level."""
FLAWS = frozenset({*ARTEFACTS, *MISTAKES[3], *MISTAKES[2], *MISTAKES[1]})
SOMETIMES = {"wrong-value", "wrong-object"}
"""Flaws that some edits cannot have: another one of the level is drawn then."""
CAST_SIGNS = ((1, 0, -1), (-1, 0, 1), (1, -1, 0), (-1, 1, 0), (0, 1, -1), (0, -1, 1))

GHOST, HALF = 0.72, 0.42
"""Weight of the exact edit when it is mixed with the source, at levels 3 and 2."""


@dataclass(frozen=True)
class Recipe:
    """What to draw: ``weight`` of the scene's picture, the rest from the source's."""

    scene: Scene
    weight: float = 1.0


@dataclass(frozen=True)
class Renders:
    """Source and exact edit of an item, uint8 [S, S, 3] each, drawn once for a group of candidates."""

    source: np.ndarray
    target: np.ndarray


@dataclass(frozen=True)
class Made:
    """An edit with the truth about it: levels 1..4 and the names of its flaws ("none" where there is none)."""

    image: np.ndarray  # uint8 [S, S, 3]
    instruction_following_level: int
    visual_quality_level: int
    if_flaw: str
    vq_flaw: str


def to_metadata(made: Made) -> str:
    """The ground truth about an edit as JSON text, for the metadata column of a table."""
    truth = {
        "instruction_following": made.instruction_following_level,
        "visual_quality": made.visual_quality_level,
        "instruction_following_flaw": made.if_flaw,
        "visual_quality_flaw": made.vq_flaw,
    }
    return json.dumps(truth, sort_keys=True)


def renders_of(item: Item, size: int) -> Renders:
    """Draw source and exact edit of an item."""
    return Renders(render(item.scene, size), render(item.target, size))


def _others(item: Item) -> list[int]:
    """Indices of the scene's objects that the edit does not name."""
    return [i for i in range(len(item.scene.objects)) if i != item.edit.subject]


def _wrong_value(rng: np.random.Generator, item: Item) -> Scene | None:
    """The right kind on the right object with another value; None where the kind has no other value."""
    edit = item.edit
    if edit.added is not None:
        added = edit.added
        change: dict[str, object] = {"colour": pick(rng, [c for c in unused_colours(item.scene) if c != added.colour])}
        if rng.random() < 0.5:
            change = {"shape": pick(rng, [s for s in unused_shapes(item.scene) if s != added.shape])}
        return with_object(item.target, len(item.target.objects) - 1, **change)
    values = other_values(edit, item.scene)
    return apply(item.scene, replace(edit, value=pick(rng, values))) if values else None


def _over_edit(rng: np.random.Generator, item: Item) -> Scene:
    """The exact edit and one change more: another object or the background."""
    visible = [k for k in ("recolour", "remove", "replace", "background") if k != item.kind]
    if item.kind == "style":  # colours say little in gray
        visible = ["remove", "replace"]
    kind = pick(rng, visible)
    if kind == "background":
        return apply(item.target, SceneEdit(kind, pick(rng, other_values(SceneEdit(kind, ""), item.target))))
    if item.kind in ON_OBJECT and item.kind != "remove":
        candidates = _others(item)
    else:  # every object that the edit left (an added one is last)
        candidates = list(range(len(item.target.objects) - (item.kind == "add")))
    extra = SceneEdit(kind, "", pick(rng, candidates))
    if kind != "remove":
        extra = replace(extra, value=pick(rng, other_values(extra, item.target)))
    return apply(item.target, extra)


def _wrong_object(rng: np.random.Generator, item: Item) -> Scene | None:
    """The edit carried out on another object; None where no other object can take it."""
    if item.edit.subject is None:
        return None
    radius = item.scene.objects[item.edit.subject].radius
    able = [i for i in _others(item) if item.kind != "resize" or item.scene.objects[i].radius == radius]
    return apply(item.scene, replace(item.edit, subject=pick(rng, able))) if able else None


def _side_resize(rng: np.random.Generator, item: Item) -> Scene:
    """The exact edit, but another object shrank."""
    things = item.target.objects
    named = None if item.edit.subject is None or item.kind == "remove" else item.edit.subject
    last = len(things) - (item.kind == "add")
    index = pick(rng, [i for i in range(last) if i != named])
    return with_object(item.target, index, radius=0.72 * things[index].radius)


def instruction_following_flaw(rng: np.random.Generator, item: Item, level: int, among: Collection[str] = FLAWS) -> tuple[Recipe, str]:
    """What an edit of that level shows, and the name of its flaw, drawn evenly from those of the level and ``among`` that apply."""
    assert level in (1, 2, 3, 4), level
    if level == 4:
        return Recipe(item.target), "none"
    flaws = [flaw for flaw in MISTAKES[level] if flaw in among]
    flaw = pick(rng, flaws)
    if flaw in SOMETIMES:
        scene = (_wrong_value if flaw == "wrong-value" else _wrong_object)(rng, item)
        if scene is not None:
            return Recipe(scene), flaw
        flaw = pick(rng, [flaw for flaw in flaws if flaw not in SOMETIMES])
    if flaw in ("ghost", "half"):
        return Recipe(item.target, GHOST if flaw == "ghost" else HALF), flaw
    if flaw in ("side-resize", "over-edit"):
        return Recipe((_side_resize if flaw == "side-resize" else _over_edit)(rng, item)), flaw
    if flaw == "no-op":
        return Recipe(item.scene), flaw
    if flaw == "wrong-kind":
        return Recipe(apply(item.scene, sample_edit(rng, item.scene, [k for k in KINDS if k != item.kind]))), flaw
    scene = sample_scene(rng)
    while bucket_of(scene) != item.split:  # no picture of another split's scene
        scene = sample_scene(rng)
    return Recipe(scene), flaw


def _seam(rng: np.random.Generator, image: np.ndarray, strength: float) -> np.ndarray:
    """A box whose outline (one world unit) and inside differ in brightness, as of a badly pasted patch."""
    size = len(image)
    unit = size / WORLD
    width, height = 13 + 11 * rng.random(2)
    left, top = (2 + rng.random(2) * (WORLD - 4 - np.array((width, height)))).tolist()
    rows = slice(round(top * unit), round((top + height) * unit))
    columns = slice(round(left * unit), round((left + width) * unit))
    change = np.zeros((size, size, 1), np.float32)
    change[rows, columns] = 1
    line = max(1, round(unit))
    change[rows.start + line : rows.stop - line, columns.start + line : columns.stop - line] = 0.35
    return image + change * (strength if rng.random() < 0.5 else -strength)


def visual_quality_flaw(rng: np.random.Generator, image: np.ndarray, level: int, artefact: str) -> np.ndarray:
    """The image uint8 [S, S, 3] damaged by one artefact to a level from 4 (untouched) to 1."""
    assert level in (1, 2, 3, 4), level
    if level == 4:
        return image
    match artefact:
        case "noise":
            damaged = image + NOISE[level] * rng.standard_normal(image.shape, np.float32)
        case "blur":
            radius = BLUR[level] * len(image) / WORLD
            return np.asarray(Image.fromarray(image).filter(ImageFilter.GaussianBlur(radius)))
        case "jpeg":
            encoded = io.BytesIO()
            Image.fromarray(image).save(encoded, "JPEG", quality=JPEG[level])
            return np.asarray(Image.open(encoded))
        case "seam":
            damaged = _seam(rng, image, SEAM[level])
        case _:
            assert artefact == "cast", artefact
            damaged = image + np.float32(CAST[level]) * np.array(pick(rng, CAST_SIGNS), np.float32)
    return (np.clip(damaged, 0, 255) + 0.5).astype(np.uint8)


def make_edit(
    item: Item,
    size: int,
    *,
    if_level: int,
    vq_level: int,
    vq_artefact: str,
    rng: np.random.Generator,
    renders: Renders | None = None,
    flaws: Collection[str] = FLAWS,
) -> Made:
    """The edit of an item with the given level in each dimension. ``flaws``: those of instruction following that may occur.

    ``renders`` (of this item and size) saves drawing source and exact edit again for each candidate of a group.
    """
    renders = renders or renders_of(item, size)
    recipe, if_flaw = instruction_following_flaw(rng, item, if_level, flaws)
    drawn = {item.target: renders.target, item.scene: renders.source}
    image = drawn[recipe.scene] if recipe.scene in drawn else render(recipe.scene, size)
    if recipe.weight != 1:
        mixed = recipe.weight * image.astype(np.float32) + (1 - recipe.weight) * renders.source
        image = (mixed + 0.5).astype(np.uint8)
    image = visual_quality_flaw(rng, image, vq_level, vq_artefact)
    return Made(image, if_level, vq_level, if_flaw, "none" if vq_level == 4 else vq_artefact)
