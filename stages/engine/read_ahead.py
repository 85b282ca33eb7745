"""Reading ahead in a thread beside the caller's own work.

Reading and hashing of large blocks happen outside the interpreter's lock, so a second core helps although this is one process. A bounded
number of items is held, so memory does not grow with what passes through.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

_END: Any = object()


def ahead(items: Iterable[T], room: int) -> Generator[T]:
    """The same items in the same order, produced in a thread that is up to ``room`` items ahead of the caller.

    What ``items`` raises is raised here, at its place.
    """
    iterator = iter(items)
    with ThreadPoolExecutor(1) as thread:
        coming: deque[Future[Any]] = deque(thread.submit(next, iterator, _END) for _ in range(room))
        while (item := coming.popleft().result()) is not _END:
            coming.append(thread.submit(next, iterator, _END))
            yield item
