"""Who sends a request: the person whose link the browser holds, and what the routes work with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Header, Request

from stages.annotate.config import AnnotateConfig
from stages.annotate.page.database import Database
from stages.annotate.page.limits import RateLimit
from stages.annotate.page.roster import Person, Role, Roster
from stages.annotate.page.submissions import Refused
from stages.annotate.page.work import Work


@dataclass(frozen=True)
class Page:
    """What the routes work with. ``files``: the static files by name."""

    work: Work
    database: Database
    roster: Roster
    config: AnnotateConfig
    limit: RateLimit
    failures: RateLimit
    files: dict[str, bytes]

    @property
    def cookie(self) -> str:
        """Name of the cookie; cookies do not tell ports apart, so two projects on one machine need two names."""
        return f"annotate-{self.work.project[:8]}"


def page_of(request: Request) -> Page:
    """What the application was made with."""
    return request.app.state.page


def holder(request: Request) -> Person:
    """Whose link the browser holds; 401 for none, an unknown or a revoked one, 429 for too many requests."""
    page = page_of(request)
    token = request.cookies.get(page.cookie, "")
    person = page.roster.of_token(token) if token else None
    if person is None:
        _refuse_guessing(request, counted=bool(token))
        raise Refused(401, "this browser has no valid link; open the personal link that you were sent")
    _slow_down(page.limit.wait(person.pseudonym))
    return person


def annotator(person: Annotated[Person, Depends(holder)], x_annotator: Annotated[str, Header()] = "") -> Person:
    """The annotator who sends a request."""
    return _in_role(person, x_annotator, "annotator")


def lead(person: Annotated[Person, Depends(holder)], x_annotator: Annotated[str, Header()] = "") -> Person:
    """The lead who sends a request."""
    return _in_role(person, x_annotator, "lead")


def _in_role(person: Person, named: str, role: Role) -> Person:
    if named != person.pseudonym:
        raise Refused(409, "another link was opened in this browser; open your own link again", other=True)
    if person.role != role:
        raise Refused(403, f"this is for the {role}")
    return person


def _refuse_guessing(request: Request, *, counted: bool) -> None:
    if counted:
        _slow_down(page_of(request).failures.wait(request.client.host if request.client else ""))


def _slow_down(seconds: float) -> None:
    if seconds > 0:
        raise Refused(429, "too many requests; wait a moment", wait=round(seconds + 0.5))
