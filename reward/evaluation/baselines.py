"""Trivial baselines: scores that ignore the instruction, shown beside a model in every table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image

from reward.inputs.groups import RatedGroup
from reward.inputs.images import decode


def change_from_source(source: Image.Image, edited: Image.Image) -> float:
    """Mean absolute difference in 0..255 over pixels and channels; the edit is resized to the source."""
    if edited.size != source.size:
        edited = edited.resize(source.size, Image.Resampling.BICUBIC)
    return float(np.abs(np.asarray(edited, dtype=np.float64) - np.asarray(source, dtype=np.float64)).mean())


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
