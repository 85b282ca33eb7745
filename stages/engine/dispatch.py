"""Units to actors: who does what, and what happens when an actor dies.

An actor that dies is replaced, and the units that it had are done again, each alone on an actor, so that the one at fault is known. A unit
that was on ``MAX_DEATHS`` actors as their processes died ends the command with its name; one that was lost ``MAX_LOSSES`` times because
a node went away does so, too, for it may be what ends the nodes.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayTaskError

if TYPE_CHECKING:
    from stages.engine.units import Unit, UnitRecord

MAX_DEATHS = 3
MAX_LOSSES = 10
IN_FLIGHT = 2
"""Units that an actor has at a time: it never waits for the driver."""


@dataclass
class _Actor:
    handle: Any
    node: str = ""
    units: dict[Any, Unit] = field(default_factory=dict)
    """By the reference of their call."""


class Dispatch:
    """Actors of one step with their units. ``start`` makes an actor with the methods ``node`` and ``run``."""

    def __init__(self, start: Callable[[], Any], units: Sequence[Unit], actors: int) -> None:
        self.start = start
        self.queue = deque(units)
        self.alone: deque[Unit] = deque()
        """Units that were on an actor that died."""
        self.deaths: Counter[str] = Counter()
        self.losses: Counter[str] = Counter()
        self.failed_starts = 0
        self.actors = actors
        self.alive: list[_Actor] = []
        self.starting: dict[Any, _Actor] = {}

    def records(self) -> Iterator[UnitRecord]:
        """Records of the units as they finish. What a unit's work raises is raised here as it was."""
        try:
            while self.queue or self.alone or any(actor.units for actor in self.alive):
                while len(self.alive) < min(self.actors, len(self.queue) + len(self.alone) + sum(bool(a.units) for a in self.alive)):
                    self._launch()
                calls = {reference: actor for actor in self.alive for reference in actor.units} | self.starting
                (reference, *_), _ = ray.wait(list(calls), num_returns=1)
                actor = calls[reference]
                try:
                    found = ray.get(reference)
                except RayTaskError as error:
                    raise error.cause from error
                except RayActorError as error:
                    self._bury(actor, error)
                    continue
                if reference in self.starting:
                    del self.starting[reference]
                    actor.node, self.failed_starts = found, 0
                else:
                    del actor.units[reference]
                    yield found
                self._feed(actor)
        finally:
            for actor in self.alive:
                ray.kill(actor.handle)

    def _launch(self) -> None:
        actor = _Actor(self.start())
        self.alive.append(actor)
        self.starting[actor.handle.node.remote()] = actor

    def _feed(self, actor: _Actor) -> None:
        """Units for an actor; none to one that has a unit which must be alone, or that is being emptied for one."""
        if self.alone:
            if not actor.units:
                self._give(actor, self.alone.popleft())
            return
        suspect = any(self.deaths[unit.key] or self.losses[unit.key] for unit in actor.units.values())
        while self.queue and len(actor.units) < IN_FLIGHT and not suspect:
            self._give(actor, self.queue.popleft())

    def _give(self, actor: _Actor, unit: Unit) -> None:
        actor.units[actor.handle.run.remote(unit)] = unit

    def _bury(self, actor: _Actor, error: RayActorError) -> None:
        """Take a dead actor's units back, or give up. A process that cannot be reached counts as lost with its node."""
        self.alive.remove(actor)
        self.starting = {reference: other for reference, other in self.starting.items() if other is not actor}
        ray.kill(actor.handle)  # it may only be out of reach
        gone = isinstance(error, ActorUnavailableError) or not any(node["NodeID"] == actor.node and node["Alive"] for node in ray.nodes())
        if not actor.node:
            self.failed_starts += 1
            if self.failed_starts >= MAX_LOSSES:
                raise ChildProcessError(f"worker processes died {MAX_LOSSES} times in a row before they could begin ({error})") from error
        count, limit = (self.losses, MAX_LOSSES) if gone else (self.deaths, MAX_DEATHS)
        for unit in actor.units.values():
            count[unit.key] += 1
            if count[unit.key] >= limit:
                what = "its node went away" if gone else "its worker process died, perhaps out of memory"
                raise ChildProcessError(
                    f"unit {unit.key} ({unit.name or unit.rows}) was begun {limit} times and {what} ({error})"
                ) from error
        self.alone.extend(actor.units.values())
        for other in self.alive:
            if other.node:
                self._feed(other)
