"""The six simulated editors of the toy world: they draw flawed edits of its scenes and know the ground-truth quality of each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from PIL import Image

from stages.editors.editor import Edited, EditorSpec, EditRequest
from stages.editors.licences import APACHE
from stages.world import editors, flaws, items

if TYPE_CHECKING:
    from stages.config import FlowConfig, WorldConfig


class WorldEditor:
    """A simulated editor. Its metadata contains the ground-truth quality in each dimension, for simulated raters only."""

    def __init__(self, name: str, world: WorldConfig) -> None:
        self.name = name
        self.world = world

    def edit(self, batch: Sequence[EditRequest]) -> list[Edited]:
        """Draw the candidates. Raises ``ValueError`` for a source of another data set."""
        return [self._edit(request) for request in batch]

    def _edit(self, request: EditRequest) -> Edited:
        if request.dataset != "world":
            raise ValueError(f"a toy editor edits only sources of the toy world, not of {request.dataset}")
        item, renders = _drawn(request.metadata, self.world.size)
        made = editors.edit(item, self.world.size, self.name, request.seed, renders, self.world.flaws)
        return Edited(Image.fromarray(made.image), flaws.to_metadata(made))

    def save_memory(self) -> bool:
        """There is nothing to save."""
        return False

    def close(self) -> None:
        """Nothing is held."""


@lru_cache(maxsize=4)
def _drawn(metadata: str, size: int) -> tuple[items.Item, flaws.Renders]:
    """Item, source and exact edit, drawn once for all candidates of a source."""
    item = items.from_metadata(metadata)
    return item, flaws.renders_of(item, size)


def _world(flow: FlowConfig, name: str) -> WorldConfig:
    if flow.world is None:
        raise ValueError(f"editor world/{name} draws in the toy world: the configuration needs the section world")
    return flow.world


def _open(name: str, _: object, flow: FlowConfig) -> WorldEditor:
    return WorldEditor(name, _world(flow, name))


def _identity(name: str, _: object, flow: FlowConfig) -> dict[str, Any]:
    return _world(flow, name).model_dump(mode="json")


EDITORS = [
    EditorSpec(
        name=f"world/{name}",
        revision="1",
        licence=APACHE,
        open=partial(_open, name),
        identity=partial(_identity, name),
        max_batch=64,
        tested="embedded",
    )
    for name in editors.EDITORS
]
