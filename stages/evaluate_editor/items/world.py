"""Held-out scenes of the built-in toy data set; no other split has them as sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import ConfigDict, Field, RootModel

from stages.engine.ids import content_id
from stages.evaluate_editor.items.item import Item, ItemSource

if TYPE_CHECKING:
    from stages.config import FlowConfig, WorldConfig


class WorldItems(ItemSource, RootModel[Annotated[int, Field(ge=2)]]):
    """Scenes of the toy data set; a configuration gives their number."""

    model_config = ConfigDict(frozen=True)
    caveats = ("Synthetic scenes and a programmatic judge: no difference was measured on photographs.",)
    has_references = True
    averaging = "items"
    dataset = "world"
    may_be_known = False
    unit_items = 80

    def identity(self, flow: FlowConfig) -> dict[str, Any]:
        """The toy data set's settings and the seed."""
        return {"world": _world(flow).model_dump(mode="json"), "seed": flow.seed}

    def count(self, flow: FlowConfig) -> int:
        """As configured."""
        return self.root

    def read(self, flow: FlowConfig, first: int, count: int) -> list[Item]:
        """Drawn from the seed and the index."""
        return [_item(flow.seed, index, _world(flow)) for index in range(first, first + count)]


def _world(flow: FlowConfig) -> WorldConfig:
    if flow.world is None:
        raise ValueError("evaluate_editor.items: a number draws scenes of the toy data set, but the configuration has no section world")
    return flow.world


def _item(seed: int, index: int, world: WorldConfig) -> Item:
    from stages.world import items
    from stages.world.scenes import render

    drawn = items.item(seed, "benchmark", index, kinds=world.kinds, jitter=world.jitter)
    source, target = render(drawn.scene, world.size), render(drawn.target, world.size)
    item_id = content_id("item", source.tobytes(), drawn.instruction)
    return Item(item_id, source, drawn.instruction, drawn.kind, "en", target, metadata=items.to_metadata(drawn))
