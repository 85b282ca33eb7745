"""The programmatic judge of the built-in toy data set: compares with the exact edit (`stages.world.judge` has formulas and weaknesses)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import ConfigDict, RootModel

from stages.evaluate_editor.judges.judge import Judge, JudgeEdits
from stages.evaluate_editor.verdict import HEADLINE, Verdict, viescore

if TYPE_CHECKING:
    import numpy as np

    from stages.evaluate_editor.items.item import Item


class WorldJudge(Judge, RootModel[Literal["world"]]):
    """A program that knows the exact edit; it has no settings."""

    model_config = ConfigDict(frozen=True)
    name: ClassVar[str] = "world"  # ty: ignore[incompatible-attribute-override]
    needs_reference = True
    caveats = ("The judge's two scores are not independent: damage to the picture also lowers semantic consistency.",)

    @property
    def revision(self) -> str:
        """Version of the formulas."""
        return "1"

    def open(self, replies: Path) -> JudgeEdits:
        """Nothing is loaded or kept."""
        return _judge


def _judge(items: Sequence[Item], edited: Sequence[np.ndarray]) -> list[Verdict]:
    """Compare each edit with its source and its exact edit."""
    from stages.world.judge import judge

    verdicts = []
    for item, output in zip(items, edited, strict=True):
        assert item.reference is not None
        scores = [round(score, 4) for score in judge(item.image, item.reference, output)]
        verdicts.append(Verdict("ok", dict(zip(HEADLINE, scores, strict=True)), viescore(*scores)))
    return verdicts
