"""What the judges that are vision-language models share: questions, sub-scores and the format of the pictures."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from stages.engine.config import Config
from stages.engine.ids import settings_hash
from stages.evaluate_editor.judges.judge import Judge
from stages.evaluate_editor.vlm.questions import RUBRICS, Rubric, RubricName


class VlmJudge(Judge, Config):
    """Base of these judges: the questions of :mod:`stages.evaluate_editor.vlm.questions`."""

    rubric: RubricName = Field(
        "viescore", description="Questions and scale; viescore: GEdit-Bench's design, 0 to 10; imgedit: ImgEdit-Bench's, 1 to 5"
    )
    weights: str = Field("", description="Revision of the weights: of the Hub, or as you name what you serve")
    image_format: Literal["png", "jpeg"] = Field(
        "png", description="How the judge gets pictures; jpeg has quality 95 and full colour resolution"
    )
    is_model: ClassVar[bool] = True
    caveats: ClassVar[tuple[str, ...]] = (
        "The judge is asked questions of our own. Its scores compare with each other, not with published ones of the same model.",
    )

    @property
    def asks(self) -> Rubric:
        """The rubric itself."""
        return RUBRICS[self.rubric]

    @property
    def subscores(self) -> tuple[str, ...]:
        """Those of the rubric."""
        return self.asks.subscores

    @property
    def shown(self) -> tuple[str, ...]:
        """Those of the rubric."""
        return self.asks.shown

    @property
    def calls(self) -> int:
        """One per question."""
        return len(self.asks.questions)

    def record(self) -> dict[str, Any]:
        """What replies depend on."""
        return self.asked() | {"rubric": self.rubric}

    def asked(self) -> dict[str, Any]:
        """What a reply depends on beside pictures and instruction."""
        texts = settings_hash([question.text for question in self.asks.questions])
        return {"questions": texts, "images": self.image_format, "weights": self.weights}
