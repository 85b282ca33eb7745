"""Reading ahead in a thread: same items, same order, bounded buffer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.engine.prefetch import prefetch


@given(items=st.lists(st.integers() | st.none()), buffer_size=st.integers(1, 5))
def test_items_arrive_in_their_order(items: list[int | None], buffer_size: int) -> None:
    assert list(prefetch(items, buffer_size)) == items


def test_the_buffer_is_bounded_and_an_error_comes_after_the_items_before_it() -> None:
    made: list[int] = []

    def items() -> Iterator[int]:
        for number in range(8):
            made.append(number)
            yield number
        raise ValueError("the ninth is damaged")

    taken = []
    with pytest.raises(ValueError, match="the ninth is damaged"):
        for item in prefetch(items(), 3):
            taken.append(item)
            assert len(made) <= len(taken) + 3
    assert taken == list(range(8))


def test_a_caller_that_stops_early_ends_the_thread() -> None:
    def endless() -> Iterator[int]:
        number = 0
        while True:
            yield number
            number += 1

    numbers = prefetch(endless(), 2)
    assert next(numbers) == 0
    numbers.close()
