"""Reading ahead in a thread: the same items, errors at their place, never more than a few items at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.engine import read_ahead as beside


@given(items=st.lists(st.integers() | st.none()), room=st.integers(1, 5))
def test_items_arrive_in_their_order(items: list[int | None], room: int) -> None:
    assert list(beside.ahead(items, room)) == items


def test_no_more_than_the_room_is_read_ahead_and_an_error_comes_at_its_place() -> None:
    made: list[int] = []

    def items() -> Iterator[int]:
        for number in range(8):
            made.append(number)
            yield number
        raise ValueError("the ninth is damaged")

    taken = []
    with pytest.raises(ValueError, match="the ninth is damaged"):
        for item in beside.ahead(items(), 3):
            taken.append(item)
            assert len(made) <= len(taken) + 3
    assert taken == list(range(8))


def test_a_caller_that_stops_early_ends_the_thread() -> None:
    def endless() -> Iterator[int]:
        number = 0
        while True:
            yield number
            number += 1

    numbers = beside.ahead(endless(), 2)
    assert next(numbers) == 0
    numbers.close()
