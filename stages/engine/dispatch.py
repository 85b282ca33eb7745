"""Assigns units to actors, and handles the death of an actor.

A dead actor is replaced. Each of its units becomes a suspect and runs again by itself on an actor, which identifies the unit that causes
the deaths. After ``MAX_DEATHS`` deaths of processes that had a unit, the rows that end them are looked for and left out
(:mod:`stages.engine.fatal_rows`). The command ends with the name of a unit when there is no such row, and after ``MAX_LOSSES`` losses of
nodes that had it: the unit may be what ends the nodes.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayTaskError

from stages.engine.fatal_rows import without_fatal_rows

if TYPE_CHECKING:
    from stages.engine.units import Unit, UnitRecord

MAX_DEATHS = 3
MAX_LOSSES = 10
IN_FLIGHT = 2
"""Units in flight per actor: with two, it never waits for the driver."""


@dataclass
class _Actor:
    handle: Any
    node: str = ""
    units: dict[Any, Unit] = field(default_factory=dict)
    """Units in flight, by the reference of their call."""


class Dispatch:
    """The actors of one step and their units.

    ``start`` returns an actor with the method ``run``, and a reference to the id of its node, which is there when the actor is ready.
    ``retire`` gets the actors that are left when all units are done; after an exception they are killed.
    """

    def __init__(
        self, start: Callable[[], tuple[Any, Any]], units: Sequence[Unit], actors: int, retire: Callable[[Any], None] = ray.kill
    ) -> None:
        self.start = start
        self.retire = retire
        self.queue = deque(units)
        self.suspects: deque[Unit] = deque()
        """Units in flight on an actor that died; each is run alone."""
        self.deaths: Counter[str] = Counter()
        self.losses: Counter[str] = Counter()
        self.divided: set[str] = set()
        """Units that are done without their fatal rows."""
        self.failed_starts = 0
        self.actors = actors
        self.alive: list[_Actor] = []
        self.starting: dict[Any, _Actor] = {}

    def records(self) -> Iterator[UnitRecord]:
        """Records of the units as they finish. Raises what a unit's work raises, unwrapped."""
        try:
            while self.queue or self.suspects or any(actor.units for actor in self.alive):
                while len(self.alive) < min(self.actors, len(self.queue) + len(self.suspects) + sum(bool(a.units) for a in self.alive)):
                    handle, ready = self.start()
                    self.alive.append(_Actor(handle))
                    self.starting[ready] = self.alive[-1]
                calls = {reference: actor for actor in self.alive for reference in actor.units} | self.starting
                (reference, *_), _ = ray.wait(list(calls), num_returns=1)
                actor = calls[reference]
                try:
                    found = ray.get(reference)
                except RayTaskError as error:
                    raise error.cause from error
                except RayActorError as error:
                    self._handle_actor_death(actor, error)
                    continue
                if reference in self.starting:
                    del self.starting[reference]
                    actor.node, self.failed_starts = found, 0
                else:
                    del actor.units[reference]
                    yield found
                self._submit(actor)
            while self.alive and (actor := self.alive.pop()):
                (self.retire if actor.node else ray.kill)(actor.handle)
        finally:
            for actor in self.alive:
                ray.kill(actor.handle)

    def _submit(self, actor: _Actor) -> None:
        """Fill an actor with units. While suspects wait, it gets one of them once it is empty; beside a suspect it gets nothing."""
        if self.suspects:
            if not actor.units:
                self._send(actor, self.suspects.popleft())
            return
        has_suspect = any(self.deaths[unit.key] or self.losses[unit.key] for unit in actor.units.values())
        while self.queue and len(actor.units) < IN_FLIGHT and not has_suspect:
            self._send(actor, self.queue.popleft())

    def _send(self, actor: _Actor, unit: Unit) -> None:
        actor.units[actor.handle.run.remote(unit)] = unit

    def _handle_actor_death(self, actor: _Actor, error: RayActorError) -> None:
        """Make a dead actor's units suspects, or give up. An actor that cannot be reached counts as lost with its node."""
        self.alive.remove(actor)
        self.starting = {reference: other for reference, other in self.starting.items() if other is not actor}
        ray.kill(actor.handle)  # it may be unreachable, not dead
        gone = isinstance(error, ActorUnavailableError) or not any(node["NodeID"] == actor.node and node["Alive"] for node in ray.nodes())
        if not actor.node:
            self.failed_starts += 1
            if self.failed_starts >= MAX_LOSSES:
                raise ChildProcessError(f"worker processes died {MAX_LOSSES} times in a row before they could begin ({error})") from error
        count, limit = (self.losses, MAX_LOSSES) if gone else (self.deaths, MAX_DEATHS)
        for call, unit in list(actor.units.items()):
            count[unit.key] += 1
            if count[unit.key] >= limit:
                left = None if gone or unit.key in self.divided else without_fatal_rows(unit, self.start)
                if left is not None:
                    self.divided.add(unit.key)
                    self.deaths[unit.key] = 0
                    actor.units[call] = left
                    continue
                what = "its node went away" if gone else "its worker process died, perhaps out of memory"
                raise ChildProcessError(
                    f"unit {unit.key} ({unit.name or unit.rows}) was begun {limit} times and {what} ({error})"
                ) from error
        self.suspects.extend(actor.units.values())
        for other in self.alive:
            if other.node:
                self._submit(other)
