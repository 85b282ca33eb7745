"""The scores in a reply of a judge, or why there are none. No number is ever guessed, clipped or completed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

_FENCE = re.compile(r"^```\w*\s*|\s*```$")
_THOUGHT = "</think>"
_REFUSAL = re.compile(
    r"\b(i'?m sorry|i am sorry|i apologi[sz]e|i can(?:no|')t (?:help|assist|evaluate|comply|provide|identify)|i'?m (?:not able|unable) to"
    r"|i am (?:not able|unable) to|against my (?:policy|guidelines))\b|抱歉|无法(?:协助|提供|评估)|不能协助",
    re.IGNORECASE,
)


class Unparsable(ValueError):
    """Why a reply has no scores. ``refused``: the model says that it does not want to answer."""

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


def scores_of(reply: str, count: int = 2, least: float = 0.0, most: float = 10.0) -> tuple[float, ...]:
    """The ``count`` scores. Raises ``Unparsable``.

    Taken are the last JSON object that has the key ``score``, wherever in the text it is, and a reply that is nothing but a list. The value
    must be a list of exactly ``count`` numbers from ``least`` to ``most``; a number may be written as text. Text before ``</think>`` does
    not count.
    """
    text = reply.rpartition(_THOUGHT)[2].strip()
    if not text:
        raise Unparsable("the reply is empty")
    given = _last_scores(text)
    if given is None:
        raise Unparsable("the reply has no JSON object with the key score", refused=_REFUSAL.search(text.replace("’", "'")) is not None)
    if not isinstance(given, list) or len(given) != count:
        raise Unparsable(f"score should be a list of {count} numbers, it is {str(given)[:60]}")
    return tuple(_number(value, least, most) for value in given)


def _last_scores(text: str) -> Any:
    """The value of ``score`` in the last object that has it, or the list that the text is; None where there is neither."""
    found = None
    for value in _objects(text):
        if "score" in value:
            found = value["score"]
    if found is not None:
        return found
    try:
        whole = json.loads(_FENCE.sub("", text))
    except (ValueError, RecursionError):
        return None
    return whole if isinstance(whole, list) else None


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """JSON objects in a text, from left to right; one inside another is not looked at. Line breaks inside strings are let pass."""
    decoder = json.JSONDecoder(strict=False)
    place = text.find("{")
    while place >= 0:
        try:
            value, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            end = place + 1
        else:
            yield value
        place = text.find("{", end)


def _number(value: Any, least: float, most: float) -> float:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise Unparsable(f"the score {value[:20]!r} is no number") from None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or not least <= value <= most:
        raise Unparsable(f"the score {str(value)[:20]} is not from {least:g} to {most:g}")
    return float(value)
