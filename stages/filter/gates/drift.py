"""Gate: the colours changed outside the edit.

Value ``background_change``: the median change (0..255) of that half of the cells which changed least, that is the first quartile. Caught
above the threshold. Null for an instruction that asks for a change of the whole picture, or for other light or colours of it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pydantic import Field

from stages.filter.gates.gate import Gate, GateConfig, above

if TYPE_CHECKING:
    from stages.filter.pair import Pair


_LIGHT_AND_COLOUR = re.compile(
    r"\b(?:bright(?:er|en\w*)?|dark(?:er|en\w*)|light(?:er|en\w*)?|dim(?:mer|med|ming)?|warm(?:er|th|ing)?|cool(?:er|ing)?|cold(?:er)?"
    r"|vivid|vibran\w+|vintage|retro|faded?|fading|haz[ey]\w*|dehaze|fog|mist\w*|moody|dramatic|hdr|gamma|expos\w+|(?:over|under) ?exposed"
    r"|shadows?|highlights?|shade[sd]?|mid ?tones?|whites? balance|balance|temperature|tints?|tinted|hues?|casts?|grad(?:e|ed|ing)"
    r"|colou?rs|colou?ri[sz]\w+|colou?rful|(?:de)?saturat\w+|tones?|toned|toning|contrast\w*|lumin\w+|glow\w*|golden hour|backlit|flash"
    r"|noir|bleach\w*|washed out|pop|punch\w*|enhance\w*|retouch\w*)\b"
    r"|光线|光照|明亮|更亮|变亮|变暗|更暗|曝光|饱和|色温|暖色|冷色|鲜艳|复古|颜色更|色彩"
)
"""Wishes for other light or colours. A list of English and Chinese words: a wish in other words is not recognised."""


class DriftGate(GateConfig):
    """The colours changed outside the edit."""

    change: float = Field(5.0, ge=0, le=255, description="Caught when the half that changed least changed by more in the median (0..255)")


def measure(pair: Pair) -> dict[str, float | int | None]:
    """The change of the background."""
    import numpy as np

    return {
        "background_change": None
        if pair.whole_picture or _LIGHT_AND_COLOUR.search(pair.words)
        else float(np.quantile(pair.change.max(axis=2), 0.25))
    }


GATE = Gate(
    config=DriftGate,
    description="Colours that changed outside the edit",
    caption="colours changed outside the edit, 0–255",
    columns={"background_change": "float64"},
    revision=2,
    measure=measure,
    decide=lambda config: above("background_change", config.change),
)
