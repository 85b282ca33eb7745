"""Editors: what turns a source into a candidate.

An editor is opened by name inside a worker process. The embedded world's flawed procedural editors are the ones in this file; a real model
is one more entry of ``open_editor`` that talks to whatever runs it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from stages.config import WorldConfig
from stages.engine import images
from stages.world import editors, flaws, items

WORLD_PREFIX = "world/"


@dataclass(frozen=True)
class Edited:
    """An edit: encoded image, and JSON metadata that only plug-ins of the same data set read."""

    image: bytes
    metadata: str


class Editor(Protocol):
    """``revision`` names weights and code; ``edit`` gets a row of the ``sources`` contract and may raise, which fails the candidate."""

    revision: str

    def edit(self, source: Mapping[str, Any], seed: int) -> Edited:
        """The edit of a source; the same source and seed give the same bytes."""
        ...


def check_name(name: str) -> None:
    """Raise ``ValueError`` when there is no editor of that name."""
    if not name.startswith(WORLD_PREFIX) or name.removeprefix(WORLD_PREFIX) not in editors.EDITORS:
        known = ", ".join(WORLD_PREFIX + known for known in editors.EDITORS)
        raise ValueError(f"generate.editors: there is no editor {name!r}; known: {known}")


def open_editor(name: str, world: WorldConfig | None) -> Editor:
    """The editor of that name. Raises ``ValueError`` for an unknown one."""
    check_name(name)
    if world is None:
        raise ValueError(f"editor {name} draws in the embedded world: the configuration needs the section world")
    return WorldEditor(name.removeprefix(WORLD_PREFIX), world.size)


class WorldEditor:
    """A simulated editor with a profile of flaws; its metadata holds the true level in each dimension, for simulated raters only."""

    revision = "1"

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.size = size

    def edit(self, source: Mapping[str, Any], seed: int) -> Edited:
        """Draw the candidate."""
        if source["dataset"] != "world":
            raise ValueError(f"a world editor edits only sources of the embedded world, not of {source['dataset']}")
        item, renders = _drawn(source["metadata"], self.size)
        made = editors.edit(item, self.size, self.name, seed, renders)
        truth = {
            "instruction_following": made.instruction_following_level,
            "visual_quality": made.visual_quality_level,
            "instruction_following_flaw": made.if_flaw,
            "visual_quality_flaw": made.vq_flaw,
        }
        return Edited(images.png(made.image), json.dumps(truth, sort_keys=True))


@lru_cache(maxsize=4)
def _drawn(metadata: str, size: int) -> tuple[items.Item, flaws.Renders]:
    """All candidates of a source share the drawing of source and exact edit."""
    item = items.from_metadata(metadata)
    return item, flaws.renders_of(item, size)
