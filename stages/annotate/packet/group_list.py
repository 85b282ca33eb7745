"""The list of groups that `annotate export --groups FILE` reads.

In: a CSV file with a column ``group_id`` and any others, or a text file with one group id per line. Out: the ids in the order of the file,
each once; or the disputed cells of an adjudication queue (``adjudicate.csv`` of `pipeline annotate qc`).
"""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

from stages.annotate.packet.plan import Disputed
from stages.annotate.ratings.delivery import SCORES_GIVEN
from stages.annotate.ratings.rating_task import RatingTask
from stages.engine import storage

COLUMN = "group_id"


def read(path: str | Path, task: RatingTask) -> list[str]:
    """Group ids of the file. Raises ``ValueError`` naming the line of an unknown group, or for an empty list."""
    lines = _lines(path)
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


def disputed(path: str | Path, task: RatingTask) -> dict[str, Disputed]:
    """Disputed cells by group. Raises ``ValueError`` naming the line of an unknown cell, and for a file without these columns."""
    wanted = (COLUMN, "candidate_id", "dimension", SCORES_GIVEN)
    reader = csv.DictReader(_lines(path))
    missing = [name for name in wanted if name not in (reader.fieldnames or ())]
    if missing:
        raise ValueError(f"--groups {path} lacks the column {missing[0]}; --round adjudication needs the adjudicate.csv of `annotate qc`")
    found: defaultdict[str, defaultdict[str, dict[str, list[float]]]] = defaultdict(lambda: defaultdict(dict))
    for row in reader:
        group, candidate, dimension, given = (row[name] or "" for name in wanted)
        if candidate not in task.sampled.get(group, ()) or dimension not in task.dimensions:
            raise ValueError(
                f"--groups {path} line {reader.line_num}: there is no candidate {candidate!r} of group {group!r} in {dimension!r}"
            )
        try:
            found[group][candidate][dimension] = [float(score) for score in given.split()]
        except ValueError:
            raise ValueError(f"--groups {path} line {reader.line_num}: {SCORES_GIVEN} {given!r} are not numbers") from None
    return {group: dict(cells) for group, cells in found.items()}


def _lines(path: str | Path) -> list[str]:
    try:
        return storage.read_bytes(path).decode("utf-8-sig").splitlines()
    except OSError as error:
        raise ValueError(f"--groups {path} cannot be read ({error.strerror or error}); name a list of groups") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"--groups {path}: not UTF-8 text (byte {error.start}); save the list as UTF-8") from None
