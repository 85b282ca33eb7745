"""The draw for annotation: some sound candidates of each source, evenly over editors.

A source's draw depends on its own candidates and the run's seed only, so sources that are added change no other's. Of each editor one
candidate is drawn, then a second of each, and so on; within an editor, and for the last places, a seeded hash decides.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from stages.engine import contracts
from stages.engine.ids import uniform


class Sound(NamedTuple):
    """A candidate that can be annotated."""

    source_id: str
    candidate_id: str
    editor: str


def draw(candidates: Iterable[Sound], annotate: int, seed: int) -> dict[str, list[str]]:
    """The drawn candidates of each source, at most ``annotate``. A source with one sound candidate has nothing to compare: none."""
    of_source: defaultdict[str, list[Sound]] = defaultdict(list)
    for candidate in candidates:
        of_source[candidate.source_id].append(candidate)
    return {source: _drawn(found, annotate, seed) for source, found in of_source.items() if len(found) > 1}


def _drawn(candidates: Sequence[Sound], annotate: int, seed: int) -> list[str]:
    last = {editor: uniform("last places", seed, candidates[0].source_id, editor) for editor in {entry.editor for entry in candidates}}
    taken: Counter[str] = Counter()
    places = []
    for candidate in sorted(candidates, key=lambda entry: (uniform("annotate", seed, entry.candidate_id), entry.candidate_id)):
        places.append((taken[candidate.editor], last[candidate.editor], candidate.candidate_id))
        taken[candidate.editor] += 1
    return [candidate_id for *_, candidate_id in sorted(places)[:annotate]]


def table(drawn: Mapping[str, Sequence[str]]) -> pa.Table:
    """The artifact ``drawn``."""
    rows: list[dict[str, Any]] = [
        {"source_id": source, "candidate_id": candidate} for source, candidates in drawn.items() for candidate in candidates
    ]
    return contracts.table("drawn", rows)


def sound(candidates: pa.Table) -> list[Sound]:
    """The sound ones of a table of ``candidates``."""
    columns = (candidates[name].to_pylist() for name in ("source_id", "candidate_id", "editor", "status"))
    return [Sound(source, name, editor) for source, name, editor, status in zip(*columns, strict=True) if status == "ok"]


def per_source(drawn: Mapping[str, Sequence[str]]) -> int | str:
    """How many candidates are drawn of a source: a number, or from the fewest to the most."""
    sizes = [len(candidates) for candidates in drawn.values()] or [0]
    return max(sizes) if min(sizes) == max(sizes) else f"{min(sizes)} to {max(sizes)}"
