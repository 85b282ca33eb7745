"""What published benchmarks share: rows with ids, tasks and instructions that are read at once, and images that are read when needed."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from stages.engine.config import Config
from stages.engine.ids import settings_hash
from stages.evaluate_editor.items.item import Item, ItemSource, UnreadableItem

if TYPE_CHECKING:
    from stages.config import FlowConfig
    from stages.datasets.io.faults import Fault


@dataclass(frozen=True)
class BenchmarkRow:
    """An item without its image. ``place``: where the image is; ``mark``: changes when the image does, as far as that is seen unread."""

    item_id: str
    language: str
    task: str
    instruction: str
    subsets: tuple[str, ...]
    place: tuple[Any, ...]
    mark: str


class RowItems(ItemSource, Config):
    """Base of the configuration classes of published benchmarks."""

    @abstractmethod
    def rows(self) -> Sequence[BenchmarkRow]:
        """The items that the configuration asks for, in their order. Raises ``ValueError`` where there is none, or a file is not right."""

    @abstractmethod
    def images(self, rows: Sequence[BenchmarkRow]) -> Iterator[bytes | Fault]:
        """Encoded source images."""

    def absolute(self) -> Self:
        """Paths of this machine are made absolute."""
        from stages.engine import storage

        given = self.model_dump(include={"path", "images_in"})
        return self.model_copy(update={name: storage.absolute(path) for name, path in given.items()})

    def identity(self, flow: FlowConfig) -> dict[str, Any]:
        """The rows; where they lie does not count."""
        return {"benchmark": self.name, "rows": settings_hash([asdict(row) | {"place": None} for row in self.rows()])}  # ty: ignore[missing-attribute]

    def count(self, flow: FlowConfig) -> int:
        """As chosen."""
        return len(self.rows())

    def read(self, flow: FlowConfig, first: int, count: int) -> list[Item | UnreadableItem]:
        """With decoded images."""
        rows = self.rows()[first : first + count]
        return [_item(row, data) for row, data in zip(rows, self.images(rows), strict=True)]


def _item(row: BenchmarkRow, data: bytes | Fault) -> Item | UnreadableItem:
    import numpy as np

    from reward.inputs.decoding import decode
    from reward.inputs.sample import ImageError

    message = "" if isinstance(data, bytes) else data.message
    if isinstance(data, bytes):
        try:
            image = np.asarray(decode(data, what=f"the source image of item {row.item_id}"))
            return Item(row.item_id, image, row.instruction, row.task, row.language, subsets=row.subsets)
        except ImageError as error:
            message = str(error)
    return UnreadableItem(row.item_id, row.task, row.language, message, row.subsets)


def check_rows(rows: Sequence[BenchmarkRow], path: str) -> None:
    """Raise ``ValueError`` for no items, and for an item that is there twice."""
    if not rows:
        raise ValueError(f"evaluate_editor.items: {path} has no items")
    ((item_id, language), times), *_ = Counter((row.item_id, row.language) for row in rows).most_common(1)
    if times > 1:
        raise ValueError(f"evaluate_editor.items: {path} has the item {item_id} in {language} {times} times; remove all but one")
