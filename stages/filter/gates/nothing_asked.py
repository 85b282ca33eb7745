"""Gate: the instruction asks for nothing.

Value ``asked_words``: number of words; 0 for punctuation only, and for an instruction that only asks to change nothing. The
phrases are English and Chinese; others are not recognised.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pydantic import Field

from stages.filter.gates.gate import Gate, GateConfig, below

if TYPE_CHECKING:
    from stages.filter.pair import Pair

_THE_PICTURE = (
    r"(?:it|this|that|everything|all|(?:the |this |that )?(?:whole |entire |original |input |source |same )*(?:image|picture|photo|scene))"
)
_AS_IT_IS = r"(?:as (?:it )?is|as (?:it|they) (?:is|are|was|were)|unchanged|the same|intact|alone|untouched|unmodified|unedited)"
_NOTHING = re.compile(
    rf"(?:(?:make|do|apply|perform) )?(?:no|without(?: any| a)?) (?:further |other |more )*(?:changes?|edits?|modifications?|alterations?)"
    rf"(?: (?:is|are)?\s?(?:needed|required|necessary|made|to {_THE_PICTURE}))*"
    rf"|(?:please )?(?:do not|don t|dont|never) (?:change|edit|modify|alter|touch|do) (?:anything|{_THE_PICTURE})(?: at all)?"
    rf"|(?:please )?(?:do|change|edit|modify) nothing(?: (?:at all|to {_THE_PICTURE}))?"
    rf"|(?:please )?(?:keep|leave|return|preserve|copy)(?: {_THE_PICTURE})?(?: {_AS_IT_IS})+"
    rf"|(?:please )?(?:keep|return|copy|repeat|reproduce) {_THE_PICTURE}"
    rf"|(?:the )?same {_THE_PICTURE}|same|unchanged|nothing|none|null|nan|n a|no|identity|no op"
    r"|(?:请)?(?:不要|不做|不用|无需|不需要|无须)(?:任何|做)*(?:修改|改变|更改|编辑|改动|变化)?"
    r"|(?:请)?(?:保持|维持)(?:图像|图片|原图|画面|原样)?(?:不变|原样)?|(?:没有|无)(?:任何)?(?:变化|修改)"
)


class NothingAskedGate(GateConfig):
    """The instruction asks for nothing."""

    words: int = Field(1, ge=0, description="Caught with fewer words that ask for something")


def asked_words(words: str) -> int:
    """Number of words of a normalised instruction (``Pair.words``); 0 when they only ask to change nothing."""
    return 0 if _NOTHING.fullmatch(words) else len(words.split())


def measure(pair: Pair) -> dict[str, float | int | None]:
    """The number of words."""
    return {"asked_words": asked_words(pair.words)}


GATE = Gate(
    config=NothingAskedGate,
    description="Instructions that ask for nothing",
    caption="instructions that ask for nothing",
    columns={"asked_words": "int32"},
    measure=measure,
    decide=lambda config: below("asked_words", config.words),
)
