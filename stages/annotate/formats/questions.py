"""What the exports of annotation tools share: candidate and dimension of a question, from its name and the data of its task.

Layout 1: a task is a candidate and a question is a dimension (data ``group_id`` and ``candidate_id``, question ``instruction_following``).
Layout 2: a task is a group and a question is a dimension of its n-th candidate (data ``group_id`` and ``cid0``, ``cid1``, ..., question
``if0`` or ``instruction_following_0``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from stages.annotate.formats.files import RatingFile, plain
from stages.annotate.ratings.delivery import Delivery, InvalidRow, RawRating, spelled

_NUMBERED = re.compile(r"(?P<dimension>.*?)_?(?P<place>\d+)")


def asked(question: str, data: Mapping[str, Any]) -> tuple[str, str] | None:
    """Candidate and dimension, or None when the task has no candidate of that number. The dimension is not validated here."""
    if data.get("candidate_id"):
        return plain(data["candidate_id"]), spelled(question)
    match = _NUMBERED.fullmatch(question)
    candidate = data.get(f"cid{match['place']}") if match else None
    return (plain(candidate), spelled(match["dimension"])) if match and candidate else None


def delivery(file: RatingFile, format: str, counts_in: str, found: Iterable[RawRating | InvalidRow], *, empty: str) -> Delivery:
    """The ratings and invalid rows found in a file's records. Raises ``ValueError`` with the reason ``empty`` when there are none."""
    found = list(found)
    rows = [one for one in found if isinstance(one, RawRating)]
    invalid = [*file.records.invalid, *(one for one in found if isinstance(one, InvalidRow))]
    if not rows and not invalid:
        raise ValueError(f"{file.name} has no ratings: {empty}")
    return Delivery(file.name, file.sha256, format, counts_in, rows, invalid)
