"""Assigns units to actors, and handles the death of an actor.

Units with one work function are the units of one crew of actors. Several crews work at the same time as far as places and GPUs allow; a
free place goes to the crew with the most work left per actor, so that few models are loaded and no GPU waits at the end. Units may be added
while others are done; a crew that grows keeps its idle actors for as long as others work and nobody else needs their places.

A dead actor is replaced. Each of its units becomes a suspect and runs again by itself on an actor, which identifies the unit that causes
the deaths. After ``MAX_DEATHS`` deaths of processes that had a unit, the rows that end them are looked for and left out
(:mod:`stages.engine.fatal_rows`). A payload that records which rows it works on says so itself. The crew ends with the name of a unit when
there is no such row, and after ``MAX_LOSSES`` losses of nodes that had it: the unit may be what ends the nodes.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import ActorUnavailableError, RayError, RayTaskError

from stages.engine.fatal_rows import DIED, Recording, without_fatal_rows

if TYPE_CHECKING:
    from stages.engine.units import Unit, UnitRecord

MAX_DEATHS = 3
MAX_LOSSES = 10
IN_FLIGHT = 2
"""Units in flight per actor: with two, it never waits for the driver."""


class CrewFailed(ValueError):
    """A crew cannot go on, e.g. because its model cannot be loaded. Others can."""


@dataclass
class _Actor:
    handle: Any
    crew: Crew
    node: str = ""
    units: dict[Any, Unit] = field(default_factory=dict)
    """Units in flight, by the reference of their call."""


class Crew:
    """Actors with one work function, and their units.

    ``start`` returns an actor with the method ``run``, and a reference to the id of its node, which is there when the actor is ready.
    ``most``: actors at a time. ``retire`` gets the actors for which no unit is left; after an exception they are killed. ``num_gpus``: of
    an actor. ``seconds``: expected of a row, to compare the work that is left. ``grows``: whether units may be added while other crews
    work.
    """

    def __init__(
        self,
        start: Callable[[], tuple[Any, Any]],
        units: Sequence[Unit],
        most: int,
        retire: Callable[[Any], None] = ray.kill,
        *,
        name: str = "",
        num_gpus: float = 0.0,
        seconds: float = 1.0,
        grows: bool = False,
    ) -> None:
        self.start = start
        self.most = most
        self.retire = retire
        self.name = name
        self.num_gpus = num_gpus
        self.seconds = seconds
        self.grows = grows
        self.queue = deque(units)
        self.suspects: deque[Unit] = deque()
        """Units in flight on an actor that died; each is run alone."""
        self.deaths: Counter[str] = Counter()
        self.losses: Counter[str] = Counter()
        self.divided: set[str] = set()
        """Units that are done without their fatal rows."""
        self.failed_starts = 0
        self.actors: list[_Actor] = []

    @property
    def wants(self) -> bool:
        """Whether one more actor would get a unit."""
        busy = sum(bool(actor.units) for actor in self.actors)
        return len(self.actors) < min(self.most, len(self.queue) + len(self.suspects) + busy)

    @property
    def share(self) -> float:
        """Seconds of work per actor, if it had one more."""
        left = [*self.queue, *self.suspects, *(unit for actor in self.actors for unit in actor.units.values())]
        return self.seconds * sum(unit.rows for unit in left) / (len(self.actors) + 1)

    @property
    def has_work(self) -> bool:
        """Whether a unit is left, in flight or not."""
        return bool(self.queue or self.suspects or any(actor.units for actor in self.actors))

    def submit(self) -> None:
        """Fill the actors that are ready, all with a first unit, then all with a second. Towards the end an actor gets one at a time, so
        that none waits behind another while an actor has nothing."""
        ready = [actor for actor in self.actors if actor.node]
        for most in range(1, IN_FLIGHT + 1):
            for actor in ready:
                waiting = len(self.queue) + len(self.suspects)
                if len(actor.units) < most and waiting and (not actor.units or waiting >= len(self.actors)):
                    self._give(actor)

    def _give(self, actor: _Actor) -> None:
        """While suspects wait, an actor gets one of them once it is empty; beside a suspect it gets nothing."""
        if self.suspects:
            if not actor.units:
                self._send(actor, self.suspects.popleft())
        elif not any(self.deaths[unit.key] or self.losses[unit.key] for unit in actor.units.values()):
            self._send(actor, self.queue.popleft())

    def _send(self, actor: _Actor, unit: Unit) -> None:
        actor.units[actor.handle.run.remote(unit)] = unit

    def suspect(self, actor: _Actor, error: RayError, *, gone: bool) -> None:
        """Make a dead actor's units suspects. Raises ``ChildProcessError`` instead where one has ended too many processes or nodes."""
        if not actor.node:
            self.failed_starts += 1
            if self.failed_starts >= MAX_LOSSES:
                raise ChildProcessError(f"worker processes died {MAX_LOSSES} times in a row before they could begin ({error})") from error
        count, limit = (self.losses, MAX_LOSSES) if gone else (self.deaths, MAX_DEATHS)
        for call, unit in list(actor.units.items()):
            count[unit.key] += 1
            blamed = unit.payload.after_death() if isinstance(unit.payload, Recording) and not gone else None
            if blamed is not None:
                actor.units[call] = replace(unit, payload=blamed)
                self.deaths[unit.key] = 1
            elif count[unit.key] >= limit:
                left = None if gone or unit.key in self.divided else without_fatal_rows(unit, self.start)
                if left is None:
                    what = "its node went away" if gone else "its worker process died, perhaps out of memory"
                    raise ChildProcessError(
                        f"unit {unit.key} ({unit.name or unit.rows}) was begun {limit} times and {what} ({error})"
                    ) from error
                self.divided.add(unit.key)
                self.deaths[unit.key] = 0
                actor.units[call] = left
        self.suspects.extend(actor.units.values())


class Dispatch:
    """Crews at work. ``places``: actors at a time, of all crews. ``num_gpus``: those of the cluster, where crews share them.

    ``on_failure`` gets a crew that cannot go on, and why; without it that ends all.
    """

    def __init__(
        self,
        crews: Sequence[Crew],
        places: int,
        num_gpus: float = math.inf,
        on_failure: Callable[[Crew, Exception], None] | None = None,
    ) -> None:
        self.crews = list(crews)
        self.places = places
        self.num_gpus = num_gpus
        self.on_failure = on_failure
        self.starting: dict[Any, _Actor] = {}

    def records(self) -> Iterator[UnitRecord]:
        """Records of the units as they finish. Raises what a unit's work raises, unwrapped."""
        try:
            while True:
                for crew in self.crews:
                    crew.submit()
                    self._retire(crew)
                self._staff()
                calls = {reference: actor for actor in self._actors() for reference in actor.units} | self.starting
                if not calls:
                    break
                (reference, *_), _ = ray.wait(list(calls), num_returns=1)
                actor = calls[reference]
                try:
                    found = ray.get(reference)
                except RayTaskError as error:
                    self._fail(actor.crew, error.cause, error)
                    continue
                except DIED as error:
                    self._handle_actor_death(actor, error)
                    continue
                if reference in self.starting:
                    del self.starting[reference]
                    actor.node, actor.crew.failed_starts = found, 0
                else:
                    del actor.units[reference]
                    yield found
        finally:
            for actor in self._actors():
                ray.kill(actor.handle)

    def _actors(self) -> list[_Actor]:
        return [actor for crew in self.crews for actor in crew.actors]

    def _staff(self) -> None:
        """Start actors while there are places, for the crew with the most work per actor first."""
        while len(self._actors()) < self.places:
            used = sum(actor.crew.num_gpus for actor in self._actors())
            wanting = [crew for crew in self.crews if crew.wants and used + crew.num_gpus <= max(self.num_gpus, crew.num_gpus) + 1e-6]
            if not wanting:
                return
            crew = max(wanting, key=lambda crew: crew.share)  # of equal ones the first
            handle, ready = crew.start()
            crew.actors.append(_Actor(handle, crew))
            self.starting[ready] = crew.actors[-1]

    def _retire(self, crew: Crew) -> None:
        """Give up the actors of a crew that have no unit and will get none, or none soon, so that another crew has their places."""
        others = [other for other in self.crews if other is not crew]
        in_need = len(self._actors()) >= self.places and any(other.wants for other in others)
        if crew.queue or crew.suspects or (crew.grows and any(other.has_work for other in others) and not in_need):
            return
        finished = not any(actor.units for actor in crew.actors)
        for actor in [actor for actor in crew.actors if not actor.units and (actor.node or finished)]:
            crew.actors.remove(actor)
            self._forget_starts(actor)
            (crew.retire if actor.node else ray.kill)(actor.handle)

    def _handle_actor_death(self, actor: _Actor, error: RayError) -> None:
        """Have a dead actor's units done again. An actor that cannot be reached counts as lost with its node."""
        crew = actor.crew
        crew.actors.remove(actor)
        self._forget_starts(actor)
        ray.kill(actor.handle)  # it may be unreachable, not dead
        gone = isinstance(error, ActorUnavailableError) or not any(node["NodeID"] == actor.node and node["Alive"] for node in ray.nodes())
        try:
            crew.suspect(actor, error, gone=gone)
        except (ChildProcessError, CrewFailed) as failure:
            self._fail(crew, failure, failure.__cause__)

    def _fail(self, crew: Crew, failure: Exception, cause: BaseException | None) -> None:
        """End a crew that cannot go on, or everything."""
        if self.on_failure is None or not isinstance(failure, (CrewFailed, ChildProcessError)):
            raise failure from cause
        for actor in crew.actors:
            self._forget_starts(actor)
            ray.kill(actor.handle)
        crew.actors, crew.queue, crew.suspects = [], deque(), deque()
        self.on_failure(crew, failure)

    def _forget_starts(self, actor: _Actor) -> None:
        self.starting = {reference: other for reference, other in self.starting.items() if other is not actor}
