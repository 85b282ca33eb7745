"""Read a list of groups: a CSV file with a column ``group_id``, such as the ``reannotate.csv`` of quality control."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from stages import storage
from stages.ratings.manifest import Manifest


def read(path: str | Path, work: Manifest) -> frozenset[str]:
    """The groups of the list. Raises ``ValueError`` for a file that is no such list, names no group, or one that is not to be rated."""
    try:
        lines = csv.DictReader(io.StringIO(storage.read_bytes(path).decode("utf-8-sig"), newline=""))
        rows = list(lines)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} cannot be read as a CSV file ({error}); give one with a column group_id") from None
    if "group_id" not in (lines.fieldnames or ()):
        raise ValueError(f"{path} has no column group_id; its columns are {', '.join(lines.fieldnames or ()) or 'none'}")
    for number, row in enumerate(rows, start=2):
        if row["group_id"] not in work.sampled:
            raise ValueError(
                f"{path} line {number}: there is no group {row['group_id']!r} in this project; export from the run of the list"
            )
    if not rows:
        raise ValueError(f"{path} lists no group: there is nothing to rate again")
    return frozenset(row["group_id"] for row in rows)
