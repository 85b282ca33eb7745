"""Finds the rows of a unit that end the process that handles them, so that the unit can be done without them.

A decoder that crashes takes its worker with it. When a unit has ended as many workers as :mod:`stages.engine.dispatch` allows, its rows are
tried by halves on a worker of their own; nothing is published. A row is fatal when it ends a worker ``TRIES`` times, alone: one death could
be anybody's. A unit whose halves all survive died of something else, such as too little memory for all of it; and a worker that
ends before it sees a row says nothing about rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

import ray
from ray.exceptions import OutOfMemoryError, RayActorError, RayTaskError

if TYPE_CHECKING:
    from stages.engine.units import Unit

TRIES = 3
DIED = (RayActorError, OutOfMemoryError)
"""What the call of an actor raises that is gone. Ray ends one with the second error where its machine is short of memory."""


@runtime_checkable
class Divisible(Protocol):
    """A payload of rows that can be tried in parts."""

    def part(self, first: int, last: int) -> Self:
        """The rows at the places ``first`` to ``last - 1``."""
        ...

    def without(self, places: Collection[int]) -> Self:
        """The whole, in which the rows at these places are known to be fatal."""
        ...


@runtime_checkable
class Recording(Protocol):
    """A payload whose work records which rows it is at, so that the row that ends a process is known without trials."""

    def after_death(self) -> Self | None:
        """The payload after the death of the process that did it: it holds against the rows in work that they were. None where no row was
        in work, so that the process ended of something else, such as loading a model."""
        ...


def without_fatal_rows(unit: Unit, start: Callable[[], tuple[Any, Any]]) -> Unit | None:
    """The unit, its fatal rows marked; None where it has none, or cannot be divided. ``start`` as in ``Dispatch``."""
    if not isinstance(unit.payload, Divisible):
        return None
    payload: Any = unit.payload
    trial = _Trial(start)
    try:
        found = list(_fatal_among(trial, payload, 0, unit.rows))
    finally:
        trial.close()
    return replace(unit, payload=payload.without(found)) if found else None


def _fatal_among(trial: _Trial, payload: Any, first: int, last: int) -> Iterator[int]:
    """Places of the fatal rows among those at ``first`` to ``last - 1``, which together have ended a worker."""
    if last - first == 1:
        if not any(trial.survives(payload.part(first, last)) for _ in range(TRIES - 1)):
            yield first
        return
    middle = (first + last) // 2
    for begin, end in ((first, middle), (middle, last)):
        if not trial.survives(payload.part(begin, end)):
            yield from _fatal_among(trial, payload, begin, end)


class _Trial:
    """A worker for trials; another one after each death."""

    def __init__(self, start: Callable[[], tuple[Any, Any]]) -> None:
        self.start = start
        self.actor: Any = None

    def survives(self, payload: Any) -> bool:
        """Whether a worker is alive after these rows. Raises what their work raises."""
        try:
            if self.actor is None:
                self._begin()
            ray.get(self.actor.try_rows.remote(payload))
        except RayTaskError as error:
            raise error.cause from error
        except DIED:
            self.close()
            return False
        return True

    def _begin(self) -> None:
        """Start a worker that has loaded what it needs. Raises ``ChildProcessError`` when that alone ends it: no row is to blame then."""
        for left in reversed(range(TRIES)):
            try:
                self.actor, ready = self.start()
                ray.get(ready)
                ray.get(self.actor.load.remote())
            except DIED as error:
                self.close()
                if not left:
                    message = f"worker processes died {TRIES} times before they saw a row, perhaps out of memory ({error})"
                    raise ChildProcessError(message) from error
            else:
                return

    def close(self) -> None:
        """End the worker."""
        if self.actor is not None:
            ray.kill(self.actor)
        self.actor = None
