"""Scenes: a textured background with two or three shapes, as a small record, and the picture it makes.

All geometry is in world units (a picture is 32 x 32 units, y grows downwards): every image size shows the same scene.
A record in, ``uint8 [size, size, 3]`` out; edits change the record and draw it again, so an exact edit is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, cos, floor, pi, sin

import numpy as np

WORLD = 32.0
SMALL, LARGE = 4.0, 5.6
"""The two object radii."""
CENTRES = (8.4, 23.6)
"""Centres of the quadrants along each axis: 16 -+ 7.6."""

BACKGROUNDS: dict[str, tuple[int, int, int]] = {
    "sand": (226, 207, 168),
    "sky": (158, 202, 236),
    "mint": (172, 224, 196),
    "rose": (238, 180, 190),
    "slate": (122, 134, 154),
}
COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (214, 58, 54),
    "green": (58, 150, 76),
    "blue": (54, 98, 206),
    "yellow": (244, 204, 58),
    "purple": (138, 74, 184),
    "white": (246, 244, 238),
}
SHAPES = ("circle", "square", "triangle", "diamond", "cross")
TEXTURES = ("stripes", "checks", "gradient", "waves")
QUADRANTS = ("top left", "top right", "bottom left", "bottom right")

TEXTURE_AMPLITUDE = 9.0
SHADOW_SHIFT = (0.9, 1.3)
SHADOW_SOFTNESS = 2.6
SHADOW_DEPTH = 0.30

_LUMA = np.array((0.299, 0.587, 0.114), np.float32)
_SEPIA = np.array((1.08, 0.93, 0.71), np.float32)


@dataclass(frozen=True)
class SceneObject:
    """One shape: what, which colour, the quadrant that its name goes by, centre and radius in world units."""

    shape: str
    colour: str
    quadrant: int
    x: float
    y: float
    radius: float


@dataclass(frozen=True)
class Scene:
    """A picture as a record. Colours and shapes are unique within a sampled scene, at most one object per quadrant."""

    background: str
    texture: str
    phase: float  # of the texture, 0..1
    objects: tuple[SceneObject, ...]
    style: str = "plain"


def place(quadrant: int, jitter: float = 0.0, draw: tuple[float, float] = (0.5, 0.5)) -> tuple[float, float]:
    """Centre (x, y) of an object in a quadrant; ``draw`` in 0..1 moves it by up to ``jitter`` units along each axis."""
    return (
        CENTRES[quadrant % 2] + jitter * (2 * draw[0] - 1),
        CENTRES[quadrant // 2] + jitter * (2 * draw[1] - 1),
    )


def _shuffled(count: int, draws: list[float]) -> list[int]:
    """The first ``len(draws)`` entries of a random order of 0..count-1."""
    order = list(range(count))
    for i, draw in enumerate(draws):
        j = i + int(draw * (count - i))
        order[i], order[j] = order[j], order[i]
    return order[: len(draws)]


def sample_scene(rng: np.random.Generator, jitter: float = 0.0) -> Scene:
    """A random scene of two or three objects; consumes exactly 22 draws."""
    u = rng.random(22).tolist()
    count = 2 + int(u[3] * 2)
    quadrants = sorted(_shuffled(4, u[4 : 4 + count]))
    shapes = _shuffled(len(SHAPES), u[7 : 7 + count])
    colours = _shuffled(len(COLOURS), u[10 : 10 + count])
    names = list(COLOURS)
    objects = []
    for i, quadrant in enumerate(quadrants):
        x, y = place(quadrant, jitter, (u[13 + i], u[16 + i]))
        radius = SMALL if u[19 + i] < 0.5 else LARGE
        objects.append(SceneObject(SHAPES[shapes[i]], names[colours[i]], quadrant, x, y, radius))
    background = list(BACKGROUNDS)[int(u[0] * len(BACKGROUNDS))]
    return Scene(background, TEXTURES[int(u[1] * len(TEXTURES))], u[2], tuple(objects))


@lru_cache(maxsize=8)
def _axis(size: int) -> np.ndarray:
    """Pixel centres in world units, float32 [size]."""
    axis = ((np.arange(size) + 0.5) * (WORLD / size)).astype(np.float32)
    axis.flags.writeable = False
    return axis


def _texture(kind: str, phase: float, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Texture in -1..1; x [1, S], y [S, 1] -> broadcastable to [S, S]."""
    turn = 2 * pi * phase
    if kind == "stripes":
        return np.sin((2 * pi / 9) * (x + y) + turn)
    if kind == "checks":
        return np.tanh(4 * np.sin((2 * pi / 10) * x + turn) * np.sin((2 * pi / 10) * y + turn))
    if kind == "gradient":
        return (cos(turn) * (x - 16) + sin(turn) * (y - 16)) / 12
    assert kind == "waves", kind
    return np.sin((2 * pi / 8) * y + 1.4 * np.sin((2 * pi / 16) * x) + turn)


def _distance(shape: str, x: np.ndarray, y: np.ndarray, r: float) -> np.ndarray:
    """Signed distance to the outline (negative inside) of a shape of radius r about the origin, in world units."""
    if shape == "circle":
        return np.sqrt(x * x + y * y) - r
    ax = np.abs(x)
    if shape == "triangle":  # apex (0, -r), base from (-r, .75 r) to (r, .75 r)
        return np.maximum((1.75 * ax - (y + r)) / 2.0156, y - 0.75 * r)
    ay = np.abs(y)
    if shape == "square":
        return np.maximum(ax, ay) - 0.87 * r
    if shape == "diamond":
        return (ax + ay - 1.12 * r) * 0.70711
    assert shape == "cross", shape
    return np.minimum(np.maximum(ax - r, ay - 0.36 * r), np.maximum(ax - 0.36 * r, ay - r))


def _draw(canvas: np.ndarray, thing: SceneObject, axis: np.ndarray, pixel: float) -> None:
    """Shadow, then body with vertical shading and a dark rim, into the canvas float32 [S, S, 3]."""
    size, r = len(axis), thing.radius
    reach = 1.15 * r + SHADOW_SHIFT[1] + SHADOW_SOFTNESS
    columns = slice(max(0, floor((thing.x - reach) / pixel)), min(size, ceil((thing.x + reach) / pixel)))
    rows = slice(max(0, floor((thing.y - reach) / pixel)), min(size, ceil((thing.y + reach) / pixel)))
    x, y = axis[None, columns] - thing.x, axis[rows, None] - thing.y  # [1, w], [h, 1]
    patch = canvas[rows, columns]  # [h, w, 3]

    below = _distance(thing.shape, x - SHADOW_SHIFT[0], y - SHADOW_SHIFT[1], r)  # [h, w]
    shadow = np.clip(0.5 - below / SHADOW_SOFTNESS, 0, 1)
    shadow *= shadow * (3 - 2 * shadow)
    patch *= (1 - SHADOW_DEPTH * shadow)[..., None]

    inside = _distance(thing.shape, x, y, r)
    coverage = np.clip(0.5 - inside / pixel, 0, 1)
    rim = np.clip((inside + 1.25) * 0.8, 0, 1)
    light = (1.06 - 0.16 * y / r) * (1 - 0.34 * rim)
    body = light[..., None] * np.array(COLOURS[thing.colour], np.float32)
    patch += (np.minimum(body, 255) - patch) * coverage[..., None]


def render(scene: Scene, size: int) -> np.ndarray:
    """The picture of a scene, uint8 [size, size, 3]."""
    axis = _axis(size)
    texture = TEXTURE_AMPLITUDE * _texture(scene.texture, scene.phase, axis[None, :], axis[:, None])
    canvas = texture[..., None] + np.array(BACKGROUNDS[scene.background], np.float32)
    for thing in sorted(scene.objects, key=lambda o: (o.y, o.x)):
        _draw(canvas, thing, axis, WORLD / size)
    if scene.style != "plain":
        grey = (canvas @ _LUMA)[..., None]
        canvas = grey * _SEPIA if scene.style == "sepia" else np.broadcast_to(grey, canvas.shape)
    return (np.clip(canvas, 0, 255) + 0.5).astype(np.uint8)
