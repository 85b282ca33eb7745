"""Suggestions for mistyped ids and words in rating files."""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property


def did_you_mean(text: str, known: Sequence[str]) -> str:
    """The most similar known word as a question, or an empty text."""
    close = difflib.get_close_matches(text.lower(), known, 1)
    return f" (is {close[0]!r} meant?)" if close else ""


class Closest:
    """The most similar id among those with the same first or last six characters, so that hundreds of thousands of ids take no time."""

    def __init__(self, known: Iterable[str]) -> None:
        self._known = known

    @cached_property
    def _by_end(self) -> Mapping[str, list[str]]:
        table: defaultdict[str, list[str]] = defaultdict(list)
        for name in self._known:
            for end in (name[:6], name[-6:]):
                table[end].append(name)
        return table

    def to(self, text: str) -> str:
        """Suggestion for an id that is not known."""
        text = text.lower()
        alike = {name for end in (text[:6], text[-6:]) for name in self._by_end.get(end, ())}
        return did_you_mean(text, sorted(alike)[:50])
