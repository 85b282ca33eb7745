"""Gate: the instruction is no instruction: a refusal of a language model, a link, markup, control characters, or far too long.

Values ``text_faults``, how many of the first four kinds it has, and ``characters``. Caught with any fault, and above the length. Refusals
are recognised by how English and Chinese ones begin; "make the sign say I'm sorry" is none.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from pydantic import Field

from stages.filter.gates.gate import Finding, Gate, GateConfig, above

if TYPE_CHECKING:
    import pyarrow as pa

    from stages.filter.pair import Pair

_UNABLE = r"(?:can ?not|can't|am (?:unable|not able)|'?m (?:unable|not able)|won't|will not|do not|don't|apologi[sz]e)"
_REFUSAL = re.compile(
    r"\W*(?:(?:oh|unfortunately|i'?m afraid)\W+)?"
    r"(?:(?:i'?m|i am|we'?re|we are) (?:very |so |really |truly )?sorry\b|sorry\W+(?:but )?(?:i|we|this)\b"
    rf"|(?:i|we) {_UNABLE}(?! (?:want|like|need|love)\b)|i'm (?:unable|not able)"
    r"|as an? (?:ai|artificial|(?:large )?language)\b|my apologies|i apologi[sz]e"
    r"|(?:很)?抱歉|对不起|我(?:无法|不能)|作为(?:一个|一名)?(?:ai|人工智能|语言模型))",
    re.IGNORECASE,
)
_LINK = re.compile(r"\b(?:https?|ftp)://|\bwww\.\w|\bdata:image/", re.IGNORECASE)
_MARKUP = re.compile(
    r"</?[a-z][^<>]{0,300}>|<\||\|>|&(?:amp|lt|gt|quot|nbsp|#x?[0-9a-f]{1,6});|```|!?\[[^\[\]]{0,300}\]\([^()]{0,2000}\)"
    r"|^\s*[\[{]\s*[\"']|\\u[0-9a-f]{4}",
    re.IGNORECASE,
)
_TEXT_CONTROLS = "\t\n\r"


class BrokenTextGate(GateConfig):
    """The instruction is no instruction."""

    longest: int = Field(2000, ge=1, description="Caught with more characters")


def faults(instruction: str) -> int:
    """How many kinds of faults a text has: refusal, link, markup, control characters."""
    text = instruction.replace("’", "'")
    return sum(map(bool, (_REFUSAL.match(text), _LINK.search(text), _MARKUP.search(text), any(map(_is_control, text)))))


def _is_control(character: str) -> bool:
    """Whether no text has this character: controls, private use, non-characters, and the mark of a decoding error."""
    if character == "\ufffd" or "\ufdd0" <= character <= "\ufdef" or ord(character) & 0xFFFE == 0xFFFE:
        return True  # others that are not assigned may be, in a later Unicode than this Python's
    return unicodedata.category(character) in ("Cc", "Co", "Cs") and character not in _TEXT_CONTROLS


def measure(pair: Pair) -> dict[str, float | int | None]:
    """Faults and length."""
    return {"text_faults": faults(pair.edit.instruction), "characters": len(pair.edit.instruction)}


def decide(inspected: pa.Table, config: BrokenTextGate) -> Finding:
    """Any fault; a text that is too long has one more."""
    long = inspected["characters"].to_numpy() > config.longest
    return above(inspected["text_faults"].to_numpy().astype("float64") + long, 0.0)


GATE = Gate(
    revision=2,
    config=BrokenTextGate,
    description="Refusals, links, markup and other texts that are no instructions",
    caption="texts that are no instructions, faults",
    columns={"text_faults": "int32", "characters": "int32"},
    measure=measure,
    decide=decide,
)
