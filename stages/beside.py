"""Work in a thread beside the caller's own: reading ahead, and hashing what is being written.

Reading, writing and hashing of large blocks happen outside the interpreter's lock, so a second core helps although this is one process.
Both hold a bounded number of items, so memory does not grow with what passes through.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")

_WAITING = 4
"""Lists of pieces that may wait to be hashed."""
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


class Sha256:
    """A sha256 that is computed in a thread while the caller goes on; use it in a ``with`` block."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._thread = ThreadPoolExecutor(1)
        self._waiting: deque[Future[None]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._thread.shutdown(cancel_futures=True)

    def update(self, pieces: Sequence[bytes]) -> None:
        """Add pieces of the content; waits while several such lists are still to be hashed."""
        if len(self._waiting) == _WAITING:
            self._waiting.popleft().result()
        self._waiting.append(self._thread.submit(self._add, pieces))

    def hexdigest(self) -> str:
        """Hash of everything added so far."""
        while self._waiting:
            self._waiting.popleft().result()
        return self._digest.hexdigest()

    def _add(self, pieces: Sequence[bytes]) -> None:
        for piece in pieces:
            self._digest.update(piece)
