"""The lead's part of the HTTP interface: figures, decisions, and the ratings as a file that ingest takes.

Decisions are rows that are added, never changed: ``pause`` and ``resume`` an annotator, ``certify`` one without the exam, ask for one more
person (``one-more``) for a group.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import HTMLResponse, StreamingResponse
from pydantic import Field

from stages.annotate.page import lead, rated
from stages.annotate.page.database import now
from stages.annotate.page.roster import Person
from stages.annotate.page.session import holder, page_of
from stages.annotate.page.session import lead as lead_of
from stages.annotate.page.submissions import Refused, Sent
from stages.annotate.ratings.delivery import COLUMNS

routes = APIRouter()

_EXPORT = """
SELECT group_id, candidate_id, dimension, annotator AS annotator_id, score, submitted_at AS rated_at, round, seconds, comment,
rubric_version,
  submission_id AS submission, project, scale_min, scale_max FROM ratings ORDER BY submitted_at, submission_id, position, dimension
"""


class Decision(Sent):
    """What the lead decides about a person or a group."""

    subject: str = Field(max_length=200)
    action: Literal["pause", "resume", "certify", "one-more"]
    reason: str = Field("", max_length=1000)


@routes.get("/lead")
def lead_page(request: Request) -> Response:
    """The page itself, which holds no figures."""
    return HTMLResponse(page_of(request).files["lead.html"])


@routes.get("/api/lead/summary")
def summary(request: Request, person: Annotated[Person, Depends(lead_of)]) -> dict[str, Any]:
    """Progress, people, queues."""
    page = page_of(request)
    with page.database.beside() as connection:
        return lead.summary(connection, page.work, page.roster.people, page.config)


@routes.get("/api/lead/agreement")
def agreement(request: Request, person: Annotated[Person, Depends(lead_of)]) -> dict[str, Any]:
    """Agreement with intervals; the bootstrap takes longer than the rest, so it is asked for apart."""
    page = page_of(request)
    with page.database.beside() as connection:
        groups = rated.read(connection, page.work)
    return lead.agreement_of(groups, page.work)


@routes.get("/api/lead/group/{group_id}")
def group(group_id: str, request: Request, person: Annotated[Person, Depends(lead_of)]) -> dict[str, Any]:
    """A group with everybody's scores."""
    page = page_of(request)
    if group_id not in page.work.groups:
        raise Refused(404, "there is no such group")
    with page.database.beside() as connection:
        return lead.several_views(connection, page.work, group_id)


@routes.post("/api/lead/decision")
def decide(sent: Decision, request: Request, person: Annotated[Person, Depends(lead_of)]) -> dict[str, Any]:
    """Write a decision down and let it take effect."""
    page = page_of(request)
    known = page.work.plan.wanted if sent.action == "one-more" else {p.pseudonym for p in page.roster.people}
    if sent.subject not in known:
        raise Refused(422, f"{sent.subject} is not known here")
    with page.database.write() as connection:
        connection.execute(
            "INSERT INTO decisions (made_at, author, subject, action, reason) VALUES (?, ?, ?, ?, ?)",
            (now(), person.pseudonym, sent.subject, sent.action, sent.reason),
        )
        if sent.action == "one-more":
            connection.execute(
                "UPDATE groups SET wanted = "
                "1 + max(wanted, (SELECT count(*) FROM assignments a WHERE a.group_id = groups.group_id AND done = 1)) WHERE group_id = ?",
                (sent.subject,),
            )
    return {"done": sent.action}


@routes.get("/api/lead/ratings.{layout}")
def ratings(layout: Literal["csv", "jsonl"], request: Request, person: Annotated[Person, Depends(holder)]) -> Response:
    """All ratings that count, in the canonical long format, by pseudonym. In CSV, a comment that a spreadsheet would run as a formula gets
    an apostrophe in front."""
    if person.role != "lead":
        raise Refused(403, "this is for the lead")
    page = page_of(request)
    with page.database.beside() as connection:
        rows = [dict(row) for row in connection.execute(_EXPORT)]
    body = _csv(rows) if layout == "csv" else (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    kind = "text/csv" if layout == "csv" else "application/x-ndjson"
    return StreamingResponse(body, media_type=kind, headers={"content-disposition": f'attachment; filename="ratings.{layout}"'})


def _csv(rows: list[dict[str, Any]]) -> Iterator[str]:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        comment = row["comment"]
        writer.writerow(row | {"comment": "'" + comment if comment[:1] in ("=", "+", "-", "@", "\t", "\r") and comment else comment})
        yield text.getvalue()
        text.seek(0)
        text.truncate()
    yield text.getvalue()
