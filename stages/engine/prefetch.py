"""Reading ahead in a thread.

Reading and hashing of large blocks release the interpreter's lock, so a second core helps although this is one process. The buffer is
bounded, so memory does not grow with the number of items.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

_END: Any = object()


def prefetch(items: Iterable[T], buffer_size: int) -> Generator[T]:
    """The same items in the same order, produced in a thread that is up to ``buffer_size`` items ahead of the caller.

    An exception of ``items`` is raised here after the items before it.
    """
    iterator = iter(items)
    with ThreadPoolExecutor(1) as thread:
        pending: deque[Future[Any]] = deque(thread.submit(next, iterator, _END) for _ in range(buffer_size))
        while (item := pending.popleft().result()) is not _END:
            pending.append(thread.submit(next, iterator, _END))
            yield item
