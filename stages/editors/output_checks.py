"""Outputs that are no edits: black, of one colour, noise, a copy of the source, or of another size.

Each check is a measure with a threshold. Of 59 edits of photographs and renderings in public editing data sets none is flagged, also not at
a quarter of their exposure. In brackets: how near to the threshold they and their sources come, 103 images.
Not-a-number values cannot be seen here, since an image has none: pipelines turn them into black, or, where they cast without a check, into
noise. They are flagged as that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import entry_points

import numpy as np
from PIL import Image

from reward.inputs.cells import cell_change, largest_change, shrunk, small_size

BLACK = 12.0
"""``brightness`` below this: the brightest channel of the 0.1 % brightest pixels, 0..255 (least 191, and 47 at that exposure)."""
CONSTANT = 2.0
"""``contrast`` below this: the largest standard deviation of a channel, 0..255 (least 10.4, and 2.6 at that exposure)."""
NOISE = 0.25
"""``smoothness`` below this: correlation of neighbouring cells where 32 cells are on the longest side (least 0.41). Noise at any scale up
to the 16 pixels of a transformer's token at half a megapixel has at most 0.2, since such cells are independent of each other."""
UNCHANGED = 15.0
"""``largest_change`` below this (:func:`reward.inputs.cells.largest_change`; least of an edit 43; most of a copy 13, of those encoded again
by JPEG at quality 30, shrunk to a third, or brightened; a copy blurred by 2 pixels is not found)."""
ONE_SIZE = 0.0
"""``size_difference`` above this: by which share the longer or the shorter side differs from the source's."""
NOISE_CELLS, LEAST_CELLS = 32, 8
GROUP = "edit_reward_pipeline.content_filters"

ContentFilter = Callable[[Image.Image, str], bool]
"""From an edited image, RGB, and its instruction to whether it must not be used."""


def check(source: Image.Image, edited: Image.Image) -> tuple[dict[str, float], list[str]]:
    """Measures of an edit by name, and the names of the checks that flag it, in alphabetical order.

    Images are RGB. A black image is not flagged as constant, too.
    """
    (width, height), (wide, high) = source.size, edited.size
    size = small_size(width, height)
    still, small = shrunk(source, *size), shrunk(edited, *size)
    measures = {
        "brightness": float(np.quantile(small.max(axis=2), 0.999)),
        "contrast": float(small.std(axis=(0, 1)).max()),
        "smoothness": _smoothness(edited),
        "largest_change": largest_change(cell_change(still, small)),
        "size_difference": max(abs(wide / width - 1), abs(high / height - 1)),
    }
    flags = {
        "black": measures["brightness"] < BLACK,
        "constant": measures["brightness"] >= BLACK and measures["contrast"] < CONSTANT,
        "noise": measures["contrast"] >= CONSTANT and measures["smoothness"] < NOISE,
        "unchanged": measures["largest_change"] < UNCHANGED,
        "wrong-size": measures["size_difference"] > ONE_SIZE,
    }
    rounded = {name: round(value, 4) for name, value in measures.items()}
    return rounded, [name for name, flagged in flags.items() if flagged]


def _smoothness(image: Image.Image) -> float:
    """The lesser correlation of grey cells with their neighbours to the right and below, -1..1; 1 where there is no contrast, and for an
    image that is narrower than eight cells, whose correlations are chance."""
    scale = min(1.0, NOISE_CELLS / max(image.size))
    grey = shrunk(image, *(max(1, round(length * scale)) for length in image.size)).mean(axis=2, dtype=np.float64)
    if min(grey.shape) < LEAST_CELLS:
        return 1.0
    return min(_correlation(grey[1:], grey[:-1]), _correlation(grey[:, 1:], grey[:, :-1]))


def _correlation(one: np.ndarray, other: np.ndarray) -> float:
    one, other = one - one.mean(), other - other.mean()
    power = float((one**2).sum() * (other**2).sum())
    return float((one * other).sum()) / power**0.5 if power > 0 else 1.0


@cache
def content_filters() -> Mapping[str, ContentFilter]:
    """Content filters of installed packages by the name of their entry point."""
    return {point.name: point.load() for point in entry_points(group=GROUP)}


def content_filter_version(name: str) -> str:
    """That of the package which brings the filter."""
    (version,) = {point.dist.version for point in entry_points(group=GROUP, name=name) if point.dist is not None} or {""}
    return version


def content_filter(name: str) -> ContentFilter:
    """The filter of that name. Raises ``ValueError`` naming the key where no installed package brings it."""
    if name not in content_filters():
        known = ", ".join(content_filters()) or "none are installed"
        raise ValueError(f"generate.outputs.content_filter: there is no filter {name!r}; known: {known} (entry points of {GROUP})")
    return content_filters()[name]
