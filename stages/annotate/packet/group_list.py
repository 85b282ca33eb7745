"""A list of groups to hand out: what `annotate export --groups FILE` reads.

In: a CSV file with a column ``group_id`` (more columns do not matter), or a text file with one group id per line. Out: the ids in the order
of the file, each once.
"""

from __future__ import annotations

import csv
from pathlib import Path

from stages.annotate.ratings.manifest import Manifest
from stages.engine import storage

COLUMN = "group_id"


def read(path: str | Path, manifest: Manifest) -> list[str]:
    """Group ids of the file. Raises ``ValueError`` naming the line of a group that the project does not have, or for an empty list."""
    try:
        lines = storage.read_bytes(path).decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"--groups {path}: not UTF-8 text (byte {error.start}); save the list as UTF-8") from None
    header = next(csv.reader(lines[:1]), [])
    column, begin = (header.index(COLUMN), 1) if COLUMN in header else (0, 0)
    groups: dict[str, None] = {}
    for number, row in enumerate(csv.reader(lines[begin:]), begin + 1):
        name = row[column].strip() if len(row) > column else ""
        if name and name not in manifest.sampled:
            raise ValueError(f"--groups {path} line {number}: there is no group {name!r} with sampled candidates in this run")
        if name:
            groups[name] = None
    if not groups:
        raise ValueError(f"--groups {path}: the list has no group; give one group id per line, or a CSV with a column {COLUMN}")
    return list(groups)
