"""An item of an editor benchmark, and the base class of a benchmark's configuration."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import BaseModel

if TYPE_CHECKING:
    import numpy as np

    from stages.config import FlowConfig


@dataclass(frozen=True)
class Item:
    """An edit that the editor is asked for. ``reference`` is the exact edit, where one is known; images are uint8 [height, width, 3].

    Items are told apart by ``item_id`` and ``language`` together: a benchmark asks for the same edit in several languages. ``subsets``: of
    the benchmark that the item belongs to, beside the full set. ``metadata``: JSON that only plug-ins of the same data set read.
    """

    item_id: str
    image: np.ndarray
    instruction: str
    task: str
    language: str
    reference: np.ndarray | None = None
    subsets: tuple[str, ...] = ()
    metadata: str = "{}"


@dataclass(frozen=True)
class UnreadableItem:
    """An item whose source image cannot be read; no system can edit it, and it counts as missing for each of them."""

    item_id: str
    task: str
    language: str
    message: str
    subsets: tuple[str, ...] = ()


class ItemSource(BaseModel):
    """Base of a benchmark's configuration class. Benchmarks are read in slices, so that units of work carry no images."""

    caveats: ClassVar[tuple[str, ...]] = ()
    """Remarks that are shown with the results."""
    has_references: ClassVar[bool] = False
    """Whether every item has a reference edit."""
    averaging: ClassVar[Literal["items", "tasks"]] = "tasks"
    """The headline: a mean over items, or the unweighted mean of the tasks' means."""
    tasks: ClassVar[tuple[str, ...]] = ()
    """Tasks that the benchmark has; without items of one of them there is no mean over tasks. Empty: those that occur."""
    dataset: ClassVar[str] = ""
    """Name of the data set that an editor is told."""
    may_be_known: ClassVar[bool] = True
    """Whether a reward model may have been trained on the items' images."""
    unit_items: ClassVar[int] = 16
    """Items of a unit of work, which is what a crash loses at most."""

    def absolute(self) -> Self:
        """The same with paths that workers understand, which have another working directory."""
        return self

    @abstractmethod
    def identity(self, flow: FlowConfig) -> dict[str, Any]:
        """Plain values that change when the items do, and differ from those of other benchmarks. Raises ``ValueError`` for what cannot be
        read.
        """

    @abstractmethod
    def count(self, flow: FlowConfig) -> int:
        """How many items there are."""

    @abstractmethod
    def read(self, flow: FlowConfig, first: int, count: int) -> Sequence[Item | UnreadableItem]:
        """The items ``first`` to ``first + count``, the same on every call."""

    def remarks(self, flow: FlowConfig) -> list[str]:
        """What is shown with the results."""
        return list(self.caveats)

    def columns(self) -> list[tuple[str, str, str]]:
        """Columns of the table of results: (title, language, subset), the headline first; empty texts mean all. One by default."""
        return [("all items", "", "")]

    def edit_paths(self, item: Item) -> tuple[str, str] | None:
        """Where the benchmark's published layout of results has an item's edit, and its source where it has one (else empty); None where
        the benchmark has no such layout.
        """
        return None
