"""Trivial baselines: scores that ignore the instruction, shown beside a model in every table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from reward.inputs.decoding import decode

if TYPE_CHECKING:
    from reward.inputs.groups import RatedGroup

THUMBNAIL = 64
"""Longest side, in pixels, at which the change from the source is measured."""


def change_from_source(source: Image.Image, edited: Image.Image) -> float:
    """Mean absolute difference (0..255, over pixels and channels) of two RGB images shrunk to at most 64 pixels.

    The edit takes the source's shape. Means over areas (box filter) hardly see the noise of an encoder, and the cost does not grow with
    the size of photographs. This is the column ``change_from_source`` of the scores, and "closeness to the source" is its negative.
    """
    small = source.copy()
    small.thumbnail((THUMBNAIL, THUMBNAIL), Image.Resampling.BOX)
    other = edited.resize(small.size, Image.Resampling.BOX)
    return float(np.abs(np.asarray(small, np.int16) - np.asarray(other, np.int16)).mean())


def closeness_scores(groups: Sequence[RatedGroup]) -> list[np.ndarray]:
    """-|edited - source| per candidate: best for an edit that changes nothing."""
    found = []
    for group in groups:
        source = decode(group.source, what="source image")
        found.append(np.array([-change_from_source(source, decode(data, what="edited image")) for data in group.candidates]))
    return found


def constant_scores(groups: Sequence[RatedGroup]) -> list[np.ndarray]:
    """The same score for everything: every pair a predicted tie."""
    return [np.zeros(len(group.candidates)) for group in groups]


def random_scores(groups: Sequence[RatedGroup], *, seed: int) -> list[np.ndarray]:
    """Seeded noise."""
    generator = np.random.default_rng(seed)
    return [generator.standard_normal(len(group.candidates)) for group in groups]
