"""Gate: source and edited image were exchanged.

Without a model only some instructions reveal this. Value ``swap_evidence`` in -1..1, positive when the reverse order fits the instruction
better. It comes from the first of these that applies:

- names: the edited image's path has a word such as ``source`` and the source's path one such as ``edited`` (1), or the other way round
  (-1);
- a colour to turn something into: whether the changed region is nearer to it in the source than in the edited image;
- something to add or remove: whether the changed region has more detail (brightness gradients) in the image that should have less.

Null for every other instruction: which of two images came first cannot be seen in a style change, a replacement or a movement.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from pydantic import Field

from stages.filter.gates.gate import Gate, GateConfig, above

if TYPE_CHECKING:
    import numpy as np

    from stages.filter.pair import Pair

SOURCE_WORDS = frozenset(["source", "src", "input", "origin", "original", "orig", "before", "raw"])
EDITED_WORDS = frozenset(["edited", "edit", "output", "target", "tgt", "result", "after", "generated", "gen", "candidate"])

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (200, 30, 30), "green": (40, 150, 50), "blue": (40, 70, 200), "yellow": (240, 215, 50), "orange": (240, 130, 30),
    "purple": (130, 50, 160), "violet": (130, 50, 160), "pink": (240, 140, 180), "brown": (120, 75, 40), "black": (20, 20, 20),
    "white": (245, 245, 245), "grey": (128, 128, 128), "gray": (128, 128, 128), "cyan": (40, 200, 210), "teal": (20, 130, 130),
    "golden": (212, 175, 55), "gold": (212, 175, 55), "silver": (190, 190, 195), "beige": (225, 210, 180),
}  # fmt: skip
_COLOUR = "|".join(COLOURS)
_RECOLOUR = re.compile(
    rf"\b(?:make|turn|change|convert|transform|let|recolou?r|paint|dye|alter|switch|set)\b.*?"
    rf"(?:\b(?:to|into|be|become|in)\b(?: an?| the)?(?: \w+)?? (?P<into>{_COLOUR})\b|\b(?P<last>{_COLOUR})$)"
)
_ADD = re.compile(r"^(?:please )?(?:add|put|include|insert|place|draw|let there be)\b|^(?:请)?(?:添加|加上|加一|放一|画一)")
_REMOVE = re.compile(r"^(?:please )?(?:remove|delete|erase|take away|take out|get rid of|clear)\b|^(?:请)?(?:去掉|去除|移除|删除|删掉)")

CHANGED_PART = 0.35
"""A cell belongs to the changed region when it changed by more than this part of the four that changed most."""


class SwappedGate(GateConfig):
    """Source and edit were exchanged."""

    evidence: float = Field(0.5, ge=-1, le=1, description="Caught above this evidence, which is between -1 and 1")


def measure(pair: Pair) -> dict[str, float | int | None]:
    """Evidence that the pair is the wrong way round."""
    evidence = _from_names(pair.edit.source_path, pair.edit.edited_path)
    return {"swap_evidence": from_pictures(pair) if evidence is None else evidence}


def from_pictures(pair: Pair) -> float | None:
    """Evidence without the names."""
    recolour = _RECOLOUR.search(pair.words)
    if recolour:
        return _from_colour(pair, COLOURS[recolour["into"] or recolour["last"]])
    added, removed = _ADD.search(pair.words), _REMOVE.search(pair.words)
    if added or removed:
        more = _more_detail(pair)
        return None if more is None else -more if added else more
    return None


def _from_names(source: str | None, edited: str | None) -> float | None:
    first, second = (set(re.findall(r"[a-z]+", (path or "").casefold())) for path in (source, edited))
    first, second = first - second, second - first  # a word that is in both says nothing
    wrong = bool(first & EDITED_WORDS) + bool(second & SOURCE_WORDS)
    right = bool(first & SOURCE_WORDS) + bool(second & EDITED_WORDS)
    return None if wrong == right else math.copysign(1.0, wrong - right)


def _region(pair: Pair) -> np.ndarray | None:
    """Weights of the small images' pixels: the change where it is large, 0 elsewhere: [rows * cell, columns * cell], or None."""
    import numpy as np

    change = pair.change.max(axis=2)  # [rows, columns]
    largest = float(np.sort(change, axis=None)[-4:].mean())
    weights = np.where(change > CHANGED_PART * largest, change, 0.0)
    return pair.spread(weights) if largest > 0 else None


def _from_colour(pair: Pair, colour: tuple[int, int, int]) -> float | None:
    """Mean over the changed region of how much nearer the source is to the colour (0..255 in RGB), between -1 and 1."""
    import numpy as np

    wanted = np.array(colour, dtype=np.float32)
    weights = _region(pair)
    if weights is None:
        return None
    rows, columns = weights.shape
    source, edited = (np.sqrt(np.square(small[:rows, :columns] - wanted).mean(axis=2)) for small in (pair.small_source, pair.small_edited))
    return math.tanh(float(((edited - source) * weights).sum() / weights.sum()) / 32)


def _more_detail(pair: Pair) -> float | None:
    """Log ratio of brightness gradients in the changed region, edited over source, squeezed into -1..1."""
    weights = _region(pair)
    if weights is None:
        return None
    rows, columns = weights.shape
    source, edited = (
        float((_gradients(grey)[:rows, :columns] * (weights > 0)).sum()) + 1.0 for grey in (pair.source_brightness, pair.edited_brightness)
    )
    return math.tanh(math.log(edited / source))


def _gradients(grey: np.ndarray) -> np.ndarray:
    """Absolute brightness steps to the right and down: [height, width] -> [height, width]."""
    import numpy as np

    return np.abs(np.diff(grey, axis=1, append=grey[:, -1:])) + np.abs(np.diff(grey, axis=0, append=grey[-1:]))


GATE = Gate(
    config=SwappedGate,
    description="Source and edit exchanged",
    caption="source and edit exchanged, evidence −1–1",
    columns={"swap_evidence": "float64"},
    measure=measure,
    decide=lambda config: above("swap_evidence", config.evidence),
)
