"""The list of groups that `annotate export --groups FILE` reads.

In: a CSV file with a column ``group_id`` and any others, or a text file with one group id per line. Out: the ids in the order of the file,
each once.
"""

from __future__ import annotations

import csv
from pathlib import Path

from stages.annotate.ratings.rating_task import RatingTask
from stages.engine import storage

COLUMN = "group_id"


def read(path: str | Path, task: RatingTask) -> list[str]:
    """Group ids of the file. Raises ``ValueError`` naming the line of an unknown group, or for an empty list."""
    try:
        lines = storage.read_bytes(path).decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"--groups {path}: not UTF-8 text (byte {error.start}); save the list as UTF-8") from None
    header = next(csv.reader(lines[:1]), [])
    column, begin = (header.index(COLUMN), 1) if COLUMN in header else (0, 0)
    groups: dict[str, None] = {}
    for number, row in enumerate(csv.reader(lines[begin:]), begin + 1):
        name = row[column].strip() if len(row) > column else ""
        if name and name not in task.sampled:
            raise ValueError(f"--groups {path} line {number}: there is no group {name!r} with sampled candidates in this run")
        if name:
            groups[name] = None
    if not groups:
        raise ValueError(f"--groups {path}: the list has no group; give one group id per line, or a CSV with a column {COLUMN}")
    return list(groups)
