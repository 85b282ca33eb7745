"""Six simulated editors: the probability of each level in each dimension, and the artefacts that each adds.

They replace the six editing models of EditReward (arXiv 2509.26346, section 2.2). ``quill`` follows instructions well and has
poor visual quality, ``bobbin`` is the opposite, ``thimble`` is good at both, ``trowel`` at neither, ``lathe`` is average in both, and
``anvil`` reaches every level.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from stages.world.flaws import ARTEFACTS, FLAWS, Made, Renders, make_edit
from stages.world.items import Item
from stages.world.seeds import generator, pick, pick_level

Levels = tuple[float, float, float, float]


@dataclass(frozen=True)
class EditorProfile:
    """P(level 1), ..., P(level 4) in each dimension, and the artefacts that it adds, each equally often."""

    instruction_following: Levels
    visual_quality: Levels
    artefacts: tuple[str, ...] = ARTEFACTS


EDITORS: dict[str, EditorProfile] = {
    "quill": EditorProfile((0.03, 0.12, 0.25, 0.60), (0.25, 0.30, 0.25, 0.20), ("noise", "jpeg", "seam")),
    "lathe": EditorProfile((0.10, 0.20, 0.35, 0.35), (0.12, 0.23, 0.35, 0.30), ("blur", "jpeg")),
    "bobbin": EditorProfile((0.15, 0.35, 0.30, 0.20), (0.05, 0.10, 0.25, 0.60), ("blur", "cast")),
    "trowel": EditorProfile((0.22, 0.38, 0.25, 0.15), (0.40, 0.35, 0.15, 0.10), ("seam", "cast", "jpeg")),
    "thimble": EditorProfile((0.02, 0.05, 0.18, 0.75), (0.03, 0.10, 0.22, 0.65), ("noise", "blur", "cast")),
    "anvil": EditorProfile((0.12, 0.20, 0.28, 0.40), (0.25, 0.25, 0.25, 0.25), ARTEFACTS),
}

NOISY_MIX = EditorProfile((0.15, 0.15, 0.20, 0.50), (0.12, 0.15, 0.23, 0.50))
"""The editor behind a noisy fine-tuning set: about half of its edits reach level 3 or 4 in both dimensions."""


def _make(item: Item, size: int, profile: EditorProfile, renders: Renders | None, flaws: Collection[str], *key: int | str) -> Made:
    rng = generator("edit", *key, item.seed, item.split, item.index)
    return make_edit(
        item,
        size,
        if_level=pick_level(rng, profile.instruction_following),
        vq_level=pick_level(rng, profile.visual_quality),
        vq_artefact=pick(rng, [artefact for artefact in profile.artefacts if artefact in flaws] or [a for a in ARTEFACTS if a in flaws]),
        rng=rng,
        renders=renders,
        flaws=flaws,
    )


def edit(item: Item, size: int, editor: str, seed: int, renders: Renders | None = None, flaws: Collection[str] = FLAWS) -> Made:
    """The edit that an editor makes of an item with a seed, the same at every call. ``flaws``: those that may occur; an editor none of
    whose artefacts is among them adds the others."""
    return _make(item, size, EDITORS[editor], renders, flaws, editor, seed)


def noisy_edit(item: Item, size: int, renders: Renders | None = None, flaws: Collection[str] = FLAWS) -> Made:
    """The one edit of an item in a noisy set."""
    return _make(item, size, NOISY_MIX, renders, flaws, "noisy")
