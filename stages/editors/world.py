"""The six simulated editors of the toy world: they draw flawed edits of its scenes and know the ground-truth quality of each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from stages.editors.editors import Edited, EditorSpec
from stages.engine import images
from stages.world import editors, flaws, items

if TYPE_CHECKING:
    from stages.config import FlowConfig, WorldConfig


class WorldEditor:
    """A simulated editor. Its metadata contains the ground-truth quality in each dimension, for simulated raters only."""

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.size = size

    def edit(self, source: Mapping[str, Any], seed: int) -> Edited:
        """Draw the candidate."""
        if source["dataset"] != "world":
            raise ValueError(f"a toy editor edits only sources of the toy world, not of {source['dataset']}")
        item, renders = _drawn(source["metadata"], self.size)
        made = editors.edit(item, self.size, self.name, seed, renders)
        return Edited(images.png(made.image), flaws.to_metadata(made))


@lru_cache(maxsize=4)
def _drawn(metadata: str, size: int) -> tuple[items.Item, flaws.Renders]:
    """Item, source and exact edit, drawn once for all candidates of a source."""
    item = items.from_metadata(metadata)
    return item, flaws.renders_of(item, size)


def _world(flow: FlowConfig, name: str) -> WorldConfig:
    if flow.world is None:
        raise ValueError(f"editor world/{name} draws in the toy world: the configuration needs the section world")
    return flow.world


def _open(name: str, flow: FlowConfig) -> WorldEditor:
    return WorldEditor(name, _world(flow, name).size)


def _settings(name: str, flow: FlowConfig) -> dict[str, Any]:
    return _world(flow, name).model_dump(mode="json")


EDITORS = {f"world/{name}": EditorSpec("1", partial(_open, name), partial(_settings, name)) for name in editors.EDITORS}
