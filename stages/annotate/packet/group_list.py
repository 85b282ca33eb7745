"""The list of groups that `annotate export --groups FILE` reads.

In: a CSV file (also with semicolons or tabs) with a column ``group_id`` and any others, or a text file with one group id per line. Out: the
ids in the order of the file, each once; or the disputed cells of an adjudication queue (``adjudicate.csv`` of `pipeline annotate qc`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from stages.annotate.formats.files import RatingFile, Row, Table, delimited
from stages.annotate.packet.plan import Disputed
from stages.annotate.ratings.delivery import SCORES_GIVEN
from stages.annotate.ratings.rating_task import RatingTask

COLUMN = "group_id"


def read(path: str | Path, task: RatingTask) -> list[str]:
    """Group ids of the file. Raises ``ValueError`` naming the line of an unknown group, or for an empty list."""
    header, rows = _table(path)
    if COLUMN not in header:
        header, rows = [COLUMN], [(1, header), *rows]
    groups: dict[str, None] = {}
    for number, cells in rows:
        name = cells[header.index(COLUMN)].strip()
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
    header, rows = _table(path)
    missing = [name for name in wanted if name not in header]
    if missing:
        raise ValueError(f"--groups {path} lacks the column {missing[0]}; --round adjudication needs the adjudicate.csv of `annotate qc`")
    found: defaultdict[str, defaultdict[str, dict[str, list[float]]]] = defaultdict(lambda: defaultdict(dict))
    for number, cells in rows:
        group, candidate, dimension, given = (cells[header.index(name)].strip() for name in wanted)
        if candidate not in task.sampled.get(group, ()) or dimension not in task.dimensions:
            raise ValueError(f"--groups {path} line {number}: there is no candidate {candidate!r} of group {group!r} in {dimension!r}")
        try:
            found[group][candidate][dimension] = [float(score) for score in given.split()]
        except ValueError:
            raise ValueError(f"--groups {path} line {number}: {SCORES_GIVEN} {given!r} are not numbers") from None
    return {group: dict(cells) for group, cells in found.items()}


def _table(path: str | Path) -> tuple[list[str], Sequence[Row]]:
    """The first line, in lower case where it names columns, and the other lines."""
    try:
        file = RatingFile(path)
        table = delimited(file.text, file.name) if file.data.strip() else Table([COLUMN], [], "line")
    except ValueError as error:
        raise ValueError(f"--groups {error}") from None
    if table.invalid:
        raise ValueError(f"--groups {path} line {table.invalid[0].number}: {table.invalid[0].message}")
    names = [name.strip().lower() for name in table.header]
    return names if COLUMN in names else list(table.header), table.rows
