"""Suggestions for mistyped ids and words in rating files."""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from stages.annotate.ratings.rating_task import RatingTask


def did_you_mean(text: str, known: Sequence[str]) -> str:
    """The most similar known word as a question, or an empty text."""
    close = difflib.get_close_matches(text.lower(), known, 1)
    return f" (is {close[0]!r} meant?)" if close else ""


class Closest:
    """The most similar id among those with the same first or last six characters, so that hundreds of thousands of ids take no time."""

    def __init__(self, task: RatingTask) -> None:
        self.task = task
        self.tables: dict[str, dict[str, list[str]]] = {}

    def group(self, text: str) -> str:
        """Suggestion for a group id."""
        return self._suggest("group", self.task.sampled, text)

    def candidate(self, text: str) -> str:
        """Suggestion for a candidate id."""
        return self._suggest("candidate", self.task.group_of, text)

    def _suggest(self, kind: str, known: Mapping[str, Any], text: str) -> str:
        if kind not in self.tables:
            table: defaultdict[str, list[str]] = defaultdict(list)
            for name in known:
                for end in (name[:6], name[-6:]):
                    table[end].append(name)
            self.tables[kind] = table
        text = text.lower()
        alike = {name for end in (text[:6], text[-6:]) for name in self.tables[kind].get(end, ())}
        return did_you_mean(text, sorted(alike)[:50])
