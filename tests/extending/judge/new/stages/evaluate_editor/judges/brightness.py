"""A judge with a setting and a sub-score of its own: how bright an edit is. Black edits are refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from stages.engine.config import Config
from stages.evaluate_editor.items.item import Item
from stages.evaluate_editor.judges.judge import Judge, JudgeEdits
from stages.evaluate_editor.verdict import HEADLINE, Verdict, viescore


class BrightnessJudge(Judge, Config):
    """Needs no reference edit."""

    name: Literal["brightness"]
    most: int = Field(255, ge=1, le=255, description="Pixel value that scores 10")
    subscores: ClassVar[tuple[str, ...]] = (*HEADLINE, "brightness")

    @property
    def revision(self) -> str:
        """With the setting."""
        return f"brightness 1, {self.most}"

    def open(self, replies: Path) -> JudgeEdits:
        """Nothing is loaded or kept."""
        return self._judge

    def _judge(self, items: Sequence[Item], edited: Sequence[np.ndarray]) -> list[Verdict]:
        """From the mean of the pixels."""
        return [self._verdict(float(image.mean())) for image in edited]

    def _verdict(self, mean: float) -> Verdict:
        if mean == 0:
            return Verdict("refused", raw="too dark")
        score = min(10.0, 10 * mean / self.most)
        return Verdict("ok", dict.fromkeys(HEADLINE, score) | {"brightness": score}, viescore(score, score), raw=f"{mean:.1f}")
