"""The HTTP interface of the rating page for annotators; ``lead_routes`` is the lead's part.

A personal link ``/a/<token>`` sets a cookie and leads to the page. The page sends the pseudonym for which it was opened in the header
``X-Annotator``. If another link was opened in the same browser since, cookie and header differ and the request is refused, so no score is
stored for the wrong person; other sites cannot send that header. Responses to annotators contain no editor, no file name, no scores of
others and no sign of hidden gold. Errors are ``{"message": ...}`` with one sentence.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Awaitable, Callable
from importlib import resources
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException

from stages.annotate.config import AnnotateConfig
from stages.annotate.packet import rubric
from stages.annotate.page import adjudication, assignment, exam, submissions
from stages.annotate.page.current_packet import CurrentPacket
from stages.annotate.page.database import COUNTED, FLAGS, Database, clock
from stages.annotate.page.packet import Packet
from stages.annotate.page.roster import Roster
from stages.annotate.page.session import Annotator, Holder, Page, RateLimit, ThisPage, refuse_guessing
from stages.annotate.page.submissions import Draft, Refused, Skip, Submission
from stages.annotate.ratings.rating_task import ADJUDICATION, RANKING

SCRIPTS = (
    "page.js",
    "view.js",
    "keys.js",
    "keymap.js",
    "scales.js",
    "language.js",
    "messages.js",
    "keeping.js",
    "zoom.js",
    "clock.js",
    "dom.js",
    "lead.js",
)
STATIC = dict.fromkeys(SCRIPTS, "text/javascript") | dict.fromkeys(("page.css", "lead.css"), "text/css")
LARGEST_BODY = 200_000
RETRY_SECONDS = 5
FAILED_LINKS_PER_MINUTE = 30
AHEAD = 2
"""Groups that are assigned at a time: the one to rate, and the next one so that its images are loaded in time."""

SHOWN_ROUNDS = (ADJUDICATION, RANKING)
"""Rounds that the page names: they ask for something else. A name of the others would tell hidden gold apart."""

EXAM_RESULTS = {"exam-2": "next-form", "failed": "failed", "calibration": "passed", "production": "passed"}
"""Result of an exam by the stage after it."""

HEADERS = {
    "content-security-policy": "default-src 'none'; img-src 'self'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


def make(current: CurrentPacket, database: Database, roster: Roster, config: AnnotateConfig, *, preview: bool = False) -> FastAPI:
    """The application. preview: the page says that nothing is stored."""
    from stages.annotate.page import lead_routes

    folder = resources.files("stages.annotate.page") / "static"
    files = {name: (folder / name).read_bytes() for name in [*STATIC, "page.html", "lead.html"]}
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.state.page = Page(
        current,
        database,
        roster,
        config,
        RateLimit(config.serve.requests_per_minute),
        RateLimit(FAILED_LINKS_PER_MINUTE),
        files,
        preview=preview,
    )
    app.include_router(routes)
    app.include_router(lead_routes.routes)
    app.add_middleware(_Guard)
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _unknown)
    app.add_exception_handler(sqlite3.OperationalError, _busy)
    return app


def shown_group(page: Page, person: str, group_id: str) -> dict[str, Any]:
    """A group as its annotator sees it: images in this person's order, the earlier submission, the draft."""
    packet = page.packet
    group = packet.groups[group_id]
    with page.database.read() as connection:
        stage = submissions.round_of(connection, person, group_id)
        earlier, draft = submissions.latest(connection, person, group_id), submissions.draft(connection, person, group_id)
        disputed = adjudication.asked(connection, packet, person, group_id) if stage == ADJUDICATION else None
    return {
        "group_id": group_id,
        "mode": mode(stage),
        "instruction": group.instruction,
        "source": f"/image/{group.source}",
        "candidates": [{"id": c, "image": f"/image/{group.candidates[c]}"} for c in packet.order(group_id, person)],
        "levels": packet.levels_of(group_id, stage),
        "given": None if disputed is None else _by_candidate(disputed),
        "skippable": stage in assignment.LAST and earlier is None,
        "said": earlier,
        "draft": draft,
    }


def mode(stage: str) -> str:
    """Name of a stage on the page, which must not reveal calibration, re-annotation or hidden gold."""
    if stage in SHOWN_ROUNDS:
        return stage
    return "rating" if stage in COUNTED else stage.split("-")[0]


def _by_candidate(cells: adjudication.Cells) -> dict[str, dict[str, Any]]:
    """For an adjudicator the cells to score, each with the scores that were given."""
    found: dict[str, dict[str, Any]] = {}
    for (candidate, dimension), scores in cells.items():
        found.setdefault(candidate, {})[dimension] = scores
    return found


routes = APIRouter()


@routes.get("/a/{token}")
def open_link(token: str, request: Request, page: ThisPage) -> Response:
    """A personal link. The answer is a page that loads the next one: a redirect from another site would not send a Strict cookie."""
    person = page.roster.of_token(token)
    if person is None:
        refuse_guessing(request, page, counted=True)
        raise Refused(401, "this link is not valid, or no longer valid; ask for a new one")
    target = "/lead" if person.role == "lead" else "/"
    response = HTMLResponse(f'<!doctype html><meta http-equiv="refresh" content="0; url={target}"><title>Opening</title>')
    secure = request.url.scheme == "https"
    response.set_cookie(page.cookie, token, max_age=90 * 86_400, httponly=True, samesite="strict", secure=secure, path="/")
    return response


@routes.get("/")
def rating_page(page: ThisPage) -> Response:
    """The page without any groups."""
    return HTMLResponse(page.files["page.html"])


@routes.get("/static/{name}")
def static(name: str, page: ThisPage) -> Response:
    """Scripts and styles."""
    if name not in STATIC:
        raise Refused(404, "there is no such file")
    return Response(page.files[name], media_type=STATIC[name])


@routes.get("/image/{name:path}")
def image(name: str, page: ThisPage, person: Holder) -> Response:
    """An image of the packet by its exact name; 404 for any other name."""
    path = page.packet.images.get(name)
    if path is None or not Path(path).is_file():
        raise Refused(404, "there is no such image")
    return FileResponse(path, headers={"cache-control": "private, max-age=86400, immutable"})


@routes.get("/api/session")
def session(page: ThisPage, person: Holder) -> dict[str, Any]:
    """Data that the page loads once."""
    packet = page.packet
    return {
        "annotator": person.pseudonym,
        "role": person.role,
        "project": packet.project,
        "preview": page.preview,
        "dimensions": packet.dimensions,
        "levels": packet.levels,
        "flags": [{"name": flag, "words": flag.replace("-", " ").capitalize()} for flag in FLAGS],
        "rubric_version": packet.rubric_version,
        "rubrics": {language: _rubric(text, packet) for language, text in packet.rubrics.items()},
    }


def _rubric(text: str, packet: Packet) -> dict[str, Any]:
    """A rubric in one language; words, criteria: of the scores, by dimension."""
    sections = rubric.sections(text, packet.dimensions)
    levels = [f"{level:g}" for level in packet.levels]
    return {
        "blocks": rubric.blocks(text),
        "titles": {name: section.title for name, section in sections.items()},
        "words": dict(zip(levels, rubric.level_words(text, packet.dimensions, packet.levels), strict=True)),
        "criteria": {name: section.criteria for name, section in sections.items()},
    }


@routes.get("/api/work")
def next_groups(page: ThisPage, person: Annotator) -> dict[str, Any]:
    """The group to rate now, the next group, and the person's progress."""
    assigned = assignment.assign(page.database, page.current.refresh(page.database), page.config, person.pseudonym, count=AHEAD)
    with page.database.read() as connection:
        filled, places = assignment.progress(connection)
    groups = [shown_group(page, person.pseudonym, group) for group in assigned.groups]
    return {
        "stage": mode(assigned.stage),
        "groups": groups,
        "done": assigned.done,
        "total": assigned.total,
        "project": {"done": filled, "total": places},
        "rubric_version": page.packet.rubric_version,
    }


@routes.get("/api/previous")
def previous(page: ThisPage, person: Annotator, before: str = "") -> dict[str, Any]:
    """The group that this person rated before the group ``before``, else the latest one."""
    with page.database.read() as connection:
        mine = [group for group in assignment.own_groups(connection, person.pseudonym) if group in page.packet.groups]
    place = mine.index(before) + 1 if before in mine else 0
    if place >= len(mine):
        raise Refused(404, "you have no earlier group")
    return shown_group(page, person.pseudonym, mine[place])


@routes.get("/api/group/{group_id}")
def one_group(group_id: str, page: ThisPage, person: Annotator) -> dict[str, Any]:
    """The current state of a group of this person."""
    if group_id not in page.packet.groups:
        raise Refused(403, submissions.NOT_ASSIGNED)
    return shown_group(page, person.pseudonym, group_id)


@routes.put("/api/draft/{group_id}")
def save_draft(group_id: str, sent: Draft, page: ThisPage, person: Annotator) -> dict[str, Any]:
    """Store a draft."""
    ends = clock() + 60 * page.config.serve.lease_minutes
    return {"version": submissions.save_draft(page.database, person.pseudonym, group_id, sent, lease_ends=ends)}


@routes.post("/api/submit")
def submit(sent: Submission, page: ThisPage, person: Annotator) -> dict[str, Any]:
    """Store a group. The answer has feedback after a training group, and the result after the last group of an exam."""
    packet, who = page.packet, person.pseudonym
    revision = submissions.store(page.database, packet, page.config, who, sent)
    answer: dict[str, Any] = {"revision": revision}
    with page.database.read() as connection:
        stage = submissions.round_of(connection, who, sent.group_id)
        if stage == "training":
            scores = {(sent.group_id, score.candidate_id, score.dimension): score.score for score in sent.scores}
            answer["feedback"] = exam.feedback(scores, packet.plan.gold.get(sent.group_id, {}), sent.group_id, packet.dimensions)
        elif stage.startswith("exam"):
            after = assignment.stage_of(connection, packet, page.config, who)
            if after != stage and after in EXAM_RESULTS:
                answer["exam"] = EXAM_RESULTS[after]
    return answer


@routes.post("/api/skip")
def skip(sent: Skip, page: ThisPage, person: Annotator) -> dict[str, Any]:
    """Give a group back."""
    submissions.skip(page.database, person.pseudonym, sent)
    return {}


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    headers = {"retry-after": str(error.current["wait"])} if "wait" in error.current else {}
    return JSONResponse({"message": error.message, **error.current}, status_code=error.status, headers=headers)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    return JSONResponse({"message": f"{place}: {first['msg']}"}, status_code=422)


async def _unknown(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"message": error.detail}, status_code=error.status_code, headers=error.headers)


async def _busy(request: Request, error: Exception) -> Response:
    """The database is locked by another program, or its disk is full: this passes, and the page asks again."""
    print(f"warning: {request.method} {request.url.path}: the page's database cannot be used ({error})", file=sys.stderr, flush=True)
    body = {"message": "The server cannot use its database at the moment. Try again.", "wait": RETRY_SECONDS}
    return JSONResponse(body, status_code=503, headers={"retry-after": str(RETRY_SECONDS)})


class _Guard:
    """Security headers for every response, and a size limit for every body."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        length = dict(scope["headers"]).get(b"content-length", b"0")
        too_large = JSONResponse({"message": f"a request may have at most {LARGEST_BODY} bytes"}, status_code=413, headers=HEADERS)
        if not length.isdigit() or len(length) > len(str(LARGEST_BODY)) or int(length) > LARGEST_BODY:
            await too_large(scope, receive, send)
            return
        size = 0

        async def counted() -> Any:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > LARGEST_BODY:
                raise ValueError("a chunked body that is too large")
            return message

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        await self._app(scope, counted, with_headers)
