"""Which rows of a table become sources: those with the wanted values, and of them as many as are wanted.

The draw takes the rows with the least hashes of (run's seed, name of the table, number of the row), so it depends on nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import numpy as np

from stages.datasets.config import SourceTable
from stages.datasets.io.cells import text
from stages.datasets.io.text_tables import Bad
from stages.datasets.slices import Request, Slice, kept
from stages.engine.ids import uniform

Columns = Callable[[Slice, Set[str]], Iterator[Mapping[str, Any] | Bad]]
"""Reads some columns of all rows of a slice."""


def wanted(slices: Sequence[Slice], table: SourceTable, request: Request, columns: Columns) -> list[Slice]:
    """The slices of a table's plan with the wanted rows alone.

    Raises ``ValueError`` when there are fewer rows than ``take``, none with the values of ``only``, or not as many as ``expected``.
    """
    keep = np.ones(sum(len(piece.rows) for piece in slices), bool)
    if table.only:
        rows = (row for piece in slices for row in columns(piece, table.only.keys()))
        keep = np.fromiter((_matches(row, table.only) for row in rows), bool, len(keep))
    found = int(keep.sum())
    among = " with " + ", ".join(f"{name} {' or '.join(values)}" for name, values in table.only.items()) if table.only else ""
    if not found:
        raise ValueError(f"{request.key}.only: {table.path} has no row{among}")
    if table.expected not in (None, found):
        raise ValueError(f"{table.path} has {found} rows{among}, the configuration expects {table.expected} of {table.name}")
    if table.take is not None:
        if found < table.take:
            raise ValueError(
                f"{request.key}.take: {table.take:,} rows of {table.name} are wanted, and {table.path} has {found:,}{among}; lower the "
                "number, or add files"
            )
        drawn = sorted(np.flatnonzero(keep).tolist(), key=lambda row: (uniform("take", request.seed, table.name, row), row))
        keep[drawn[table.take :]] = False
    if keep.all():
        return list(slices)
    left = (replace(piece, rows=kept(piece.rows, keep)) for piece in slices)
    return [piece for piece in left if len(piece.rows)]


def _matches(row: Mapping[str, Any] | Bad, only: Mapping[str, Sequence[str]]) -> bool:
    """Whether a row has the values. One that cannot be read is kept, so that it is set aside with its reason."""
    return isinstance(row, Bad) or all(text(row.get(name)) in values for name, values in only.items())
