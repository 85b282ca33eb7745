"""Which rows are blamed for the death of a worker; the trials on real workers are in ``tests/filter/test_filter_robust.py``."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from stages.datasets.readers import Slice
from stages.engine import fatal_rows
from stages.engine.units import Unit

SEEN = 4
"""A row that a trial dies of, once, although it is sound: somebody else ended that worker."""


class Trials:
    """In place of workers: a trial dies of its fatal rows each time, and of ``SEEN`` the first ``by_others`` times."""

    fatal: Collection[int] = ()
    by_others = 0

    def __init__(self, start: Any) -> None:
        self.left = self.by_others

    def survives(self, payload: Slice) -> bool:
        rows = [row for row, _ in payload.rows]
        if SEEN in rows and self.left:
            self.left -= 1
            return False
        return not set(rows) & set(self.fatal)

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("fatal", "by_others", "blamed"),
    [
        ((), 3, []),  # two halves and the row alone: a single death of the row is not its own fault
        ((), 4, []),
        ((), 5, [SEEN]),  # three deaths alone are
        ((1,), 3, [1]),
        ((1, SEEN), 0, [1, SEEN]),
    ],
)
def test_a_row_is_blamed_for_three_deaths_alone_and_not_for_one(
    monkeypatch: pytest.MonkeyPatch, fatal: tuple[int, ...], by_others: int, blamed: list[int]
) -> None:
    monkeypatch.setattr(fatal_rows, "_Trial", type("Planned", (Trials,), {"fatal": fatal, "by_others": by_others}))
    unit = Unit("unit", Slice("x", "", {}, [(row, None) for row in range(6)]), 6)
    found = fatal_rows.without_fatal_rows(unit, lambda: (None, None))
    assert found == (None if not blamed else Unit("unit", unit.payload.without(blamed), 6))
