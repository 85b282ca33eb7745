"""What the judges that are vision-language models share: questions, sub-scores and the format of the pictures."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from stages.engine.config import Config
from stages.engine.ids import settings_hash
from stages.evaluate_editor.judges.judge import Judge
from stages.evaluate_editor.vlm.questions import QUESTIONS, SUBSCORES


class VlmJudge(Judge, Config):
    """Base of these judges: two calls per edit with the questions of :mod:`stages.evaluate_editor.vlm.questions`."""

    weights: str = Field("", description="Revision of the weights: of the Hub, or as you name what you serve")
    image_format: Literal["png", "jpeg"] = Field(
        "png", description="How the judge gets pictures; jpeg has quality 95 and full colour resolution"
    )
    subscores: ClassVar[tuple[str, ...]] = SUBSCORES
    is_model: ClassVar[bool] = True
    caveats: ClassVar[tuple[str, ...]] = (
        "The judge is asked questions of our own. Its scores compare with each other, not with published ones of the same model.",
    )

    def record(self) -> dict[str, Any]:
        """What replies depend on."""
        return self.asked()

    def asked(self) -> dict[str, Any]:
        """What a reply depends on beside pictures and instruction."""
        texts = settings_hash([question.text for question in QUESTIONS])
        return {"questions": texts, "images": self.image_format, "weights": self.weights}
