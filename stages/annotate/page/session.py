"""The session of a request: the person behind it, rate limits, and the objects that all routes use."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Header, Request

from stages.annotate.config import AnnotateConfig
from stages.annotate.page.current_packet import CurrentPacket
from stages.annotate.page.database import Database
from stages.annotate.page.judged import JudgedRatings
from stages.annotate.page.packet import Packet
from stages.annotate.page.roster import Person, Role, Roster
from stages.annotate.page.submissions import Refused

MOST_KEYS = 10_000


class RateLimit:
    """At most ``per_minute`` requests per key and minute (token bucket that starts full)."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._clock = float(per_minute), clock
        self._buckets: dict[str, tuple[float, float]] = {}  # tokens left, time
        self._lock = threading.Lock()

    def wait(self, key: str) -> float:
        """Take a token and return 0, or return the seconds until there is one."""
        with self._lock:
            now = self._clock()
            if len(self._buckets) > MOST_KEYS:  # forget keys with a full bucket
                self._buckets = {k: v for k, v in self._buckets.items() if self._filled(v, now) < self._most}
            tokens = self._filled(self._buckets.get(key, (self._most, now)), now)
            allowed = tokens >= 1
            self._buckets[key] = (tokens - 1 if allowed else tokens, now)
            return 0.0 if allowed else (1 - tokens) * 60 / self._most

    def _filled(self, bucket: tuple[float, float], now: float) -> float:
        tokens, since = bucket
        return min(self._most, tokens + (now - since) * self._most / 60)


@dataclass(frozen=True)
class Page:
    """Objects that all routes use. files: static files by name; failures: limit of attempts with invalid links."""

    current: CurrentPacket
    database: Database
    roster: Roster
    config: AnnotateConfig
    limit: RateLimit
    failures: RateLimit
    files: dict[str, bytes]
    preview: bool = False
    judged: JudgedRatings = field(default_factory=JudgedRatings)

    @property
    def packet(self) -> Packet:
        """The packet in memory."""
        return self.current.packet

    @property
    def cookie(self) -> str:
        """Name of the cookie. Cookies ignore ports, so two projects on one machine need two names."""
        return f"annotate-{self.packet.project[:8]}"


async def page_of(request: Request) -> Page:
    """The page of the application. A coroutine, because FastAPI would call a plain function in another thread."""
    return request.app.state.page


ThisPage = Annotated[Page, Depends(page_of)]
"""Parameter of a route or dependency: the page of the application."""


def holder(request: Request, page: ThisPage) -> Person:
    """The person whose link the browser has; 401 for no, an unknown or a revoked link, 429 for too many requests."""
    token = request.cookies.get(page.cookie, "")
    person = page.roster.of_token(token) if token else None
    if person is None:
        refuse_guessing(request, page, counted=bool(token))
        raise Refused(401, "this browser has no valid link; open the personal link that you received")
    _slow_down(page.limit.wait(person.pseudonym))
    return person


Holder = Annotated[Person, Depends(holder)]


def _in_role(role: Role) -> Callable[..., Person]:
    """A dependency: the person who sends a request, who must have this role."""

    def checked(person: Holder, x_annotator: Annotated[str, Header()] = "") -> Person:
        if x_annotator != person.pseudonym:
            raise Refused(409, "another link was opened in this browser; open your own link again", other=True)
        if person.role != role:
            raise Refused(403, f"this is for the {role}")
        return person

    return checked


Annotator = Annotated[Person, Depends(_in_role("annotator"))]
Lead = Annotated[Person, Depends(_in_role("lead"))]
"""Parameters of routes: the person who sends a request, in that role."""


def refuse_guessing(request: Request, page: Page, *, counted: bool) -> None:
    """Limit the attempts with invalid links per address; ``counted``: whether this request is one."""
    if counted:
        _slow_down(page.failures.wait(request.client.host if request.client else ""))


def _slow_down(seconds: float) -> None:
    if seconds > 0:
        raise Refused(429, "too many requests; wait a moment", wait=round(seconds + 0.5))
