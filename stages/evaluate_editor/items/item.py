"""An item of an editor benchmark, and the base class of a benchmark's configuration."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel

if TYPE_CHECKING:
    import numpy as np

    from stages.config import FlowConfig


@dataclass(frozen=True)
class Item:
    """An edit that the editor is asked for. ``reference`` is the exact edit, where one is known; images are uint8 [height, width, 3]."""

    item_id: str
    image: np.ndarray
    instruction: str
    task: str
    language: str
    reference: np.ndarray | None = None


class ItemSource(BaseModel):
    """Base of a benchmark's configuration class. Benchmarks are read in slices, so that units of work carry no images."""

    caveats: ClassVar[tuple[str, ...]] = ()
    """Remarks that are shown with the results."""
    has_references: ClassVar[bool] = False
    """Whether every item has a reference edit."""

    @abstractmethod
    def identity(self, flow: FlowConfig) -> dict[str, Any]:
        """Plain values that change when the items do, and differ from those of other benchmarks. Raises ``ValueError`` for what cannot be
        read.
        """

    @abstractmethod
    def count(self, flow: FlowConfig) -> int:
        """How many items there are."""

    @abstractmethod
    def read(self, flow: FlowConfig, first: int, count: int) -> Sequence[Item]:
        """The items ``first`` to ``first + count``, the same on every call."""
