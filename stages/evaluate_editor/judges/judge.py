"""The base class of a judge's configuration."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import BaseModel

from stages.evaluate_editor.verdict import HEADLINE, Verdict

if TYPE_CHECKING:
    import numpy as np

    from stages.evaluate_editor.items.item import Item

JudgeEdits = Callable[[Sequence["Item"], Sequence["np.ndarray"]], list[Verdict]]
"""From items and their edits, uint8 of their items' sizes, to one verdict per edit. A call that fails is a status, never a guess.

Raises ``ValueError`` where no further call can succeed: no key, another model than asked, a server that has stopped to answer.
"""


class Judge(BaseModel):
    """Base of a judge's configuration class."""

    if TYPE_CHECKING:
        name: str  # a field of each judge that has settings
    is_model: ClassVar[bool] = False
    """Whether each verdict costs calls of a model."""
    needs_reference: ClassVar[bool] = False
    needs_gpu: ClassVar[bool] = False
    """Whether it computes on a GPU where there is one."""
    most_workers: ClassVar[int | None] = None
    """Processes that may judge at the same time; None: any number."""
    units_at_once: ClassVar[int] = 1
    """Units that a process judges at the same time, so that calls of the next one fill the end of the one before."""
    caveats: ClassVar[tuple[str, ...]] = ()
    """Remarks that are shown with the results."""

    def absolute(self) -> Self:
        """The same with paths that workers understand, which have another working directory."""
        return self

    @property
    def subscores(self) -> tuple[str, ...]:
        """Names of the sub-scores of every ok verdict."""
        return HEADLINE

    @property
    def shown(self) -> tuple[str, ...]:
        """Those that are columns of the table of results."""
        return HEADLINE

    @property
    def calls(self) -> int:
        """Calls of a model per edit, where all succeed."""
        return 0

    @property
    def label(self) -> str:
        """The judge's name in tables."""
        return self.name

    @property
    @abstractmethod
    def revision(self) -> str:
        """Changes whenever the same edit may get another score; no other judge has the same one."""

    @property
    def variables(self) -> tuple[str, ...]:
        """Environment variables that it reads, which workers on other machines do not have."""
        return ()

    def cost(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        """US$ of so many tokens; None where it is not known."""
        return None

    def meter(self, figures: Sequence[Mapping[str, float]]) -> str:
        """What the units that are finished have used, for the progress bar."""
        prompt, completion = (int(sum(one.get(name, 0) for one in figures)) for name in ("prompt_tokens", "completion_tokens"))
        price = self.cost(prompt, completion)
        return f"{prompt + completion:,} tokens{'' if price is None else f', US$ {price:.2f}'}" if prompt + completion else ""

    def record(self) -> dict[str, Any]:
        """Settings that go into the results, as plain JSON values."""
        return {}

    def check(self) -> None:
        """Raise ``ValueError`` for what is missing; called before anything is generated."""

    @abstractmethod
    def open(self, replies: Path) -> JudgeEdits:
        """Get ready to judge, in a worker process; a model is loaded here. ``replies``: folder where replies may be kept for later runs."""
