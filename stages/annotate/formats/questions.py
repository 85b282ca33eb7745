"""Candidate and dimension of a question in an annotation tool, from its name and the data of its task.

Layout 1: a task is a candidate and a question is a dimension (data ``group_id`` and ``candidate_id``, question ``instruction_following``).
Layout 2: a task is a group and a question is a dimension of its n-th candidate (data ``group_id`` and ``cid0``, ``cid1``, ..., question
``if0`` or ``instruction_following_0``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from stages.annotate.formats.files import plain
from stages.annotate.ratings.delivery import DIMENSION_ALIASES

_NUMBERED = re.compile(r"(?P<dimension>.*?)_?(?P<place>\d+)")


def asked(question: str, data: Mapping[str, Any]) -> tuple[str, str] | None:
    """Candidate and dimension, or None when the task has no candidate of that number. The dimension is not validated here."""
    if data.get("candidate_id"):
        return plain(data["candidate_id"]), _dimension(question)
    match = _NUMBERED.fullmatch(question)
    candidate = data.get(f"cid{match['place']}") if match else None
    return (plain(candidate), _dimension(match["dimension"])) if match and candidate else None


def _dimension(text: str) -> str:
    return DIMENSION_ALIASES.get(text.lower(), text.lower())
