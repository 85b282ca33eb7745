"""The lead's part of the HTTP interface: statistics, decisions, and the ratings as a file for ingest.

Decisions are append-only rows: ``pause`` or ``resume`` an annotator, ``certify`` one without the exam, ask for one more rater
(``one-more``) of a group, or hand a group over to a person (``hand-over``).
"""

from __future__ import annotations

import json
from typing import Any, Literal

from fastapi import APIRouter, Response
from fastapi.responses import HTMLResponse
from pydantic import Field

from stages.annotate.packet.write import csv_table
from stages.annotate.page import assignment, lead
from stages.annotate.page.database import clock, now
from stages.annotate.page.session import Holder, Lead, ThisPage
from stages.annotate.page.submissions import PageRequest, Refused
from stages.annotate.ratings.delivery import COLUMNS

routes = APIRouter()

RESERVED = 24 * 3600.0
"""Seconds for which a group that was handed over is kept for its new person."""

_EXPORT = """
SELECT group_id, candidate_id, dimension, annotator AS annotator_id, score, submitted_at AS rated_at, round, seconds, comment,
rubric_version,
  submission_id AS submission, project, scale_min, scale_max FROM ratings ORDER BY submitted_at, submission_id, position, dimension
"""


class Decision(PageRequest):
    """A decision of the lead about a person or a group. to: who gets a group that is handed over."""

    subject: str = Field(max_length=200)
    action: Literal["pause", "resume", "certify", "one-more", "hand-over"]
    to: str = Field("", max_length=200)
    reason: str = Field("", max_length=1000)


@routes.get("/lead")
def lead_page(page: ThisPage) -> Response:
    """The page without any data."""
    return HTMLResponse(page.files["lead.html"])


@routes.get("/api/lead/summary")
def summary(page: ThisPage, person: Lead) -> dict[str, Any]:
    """Progress, agreement, people, queues; ``problem``: why the latest export was not taken up."""
    packet = page.current.refresh(page.database)
    with page.database.separate() as connection:
        judged = page.judged.of(connection, packet, page.config)
        return lead.summary(connection, packet, page.roster.people, page.config, judged) | {"problem": page.current.problem}


@routes.get("/api/lead/group/{group_id}")
def group(group_id: str, page: ThisPage, person: Lead) -> dict[str, Any]:
    """A group with everybody's scores."""
    if group_id not in page.packet.groups:
        raise Refused(404, "there is no such group")
    with page.database.separate() as connection:
        return lead.all_submissions(connection, page.packet, group_id)


@routes.post("/api/lead/decision")
def decide(sent: Decision, page: ThisPage, person: Lead) -> dict[str, Any]:
    """Store a decision and apply it."""
    annotators = {p.pseudonym for p in page.roster.people if p.role == "annotator" and not p.revoked}
    groups = page.current.refresh(page.database).plan.wanted
    known = groups if sent.action in ("one-more", "hand-over") else {p.pseudonym for p in page.roster.people}
    if sent.subject not in known:
        raise Refused(422, f"{sent.subject} is not a person or group of this project")
    if sent.action == "hand-over" and sent.to not in annotators:
        raise Refused(422, f"{sent.to or 'nobody'} is not an annotator with a valid link")
    with page.database.write() as connection:
        connection.execute(
            "INSERT INTO decisions (made_at, author, subject, action, reason) VALUES (?, ?, ?, ?, ?)",
            (now(), person.pseudonym, sent.subject, sent.action, f"to {sent.to}: {sent.reason}" if sent.to else sent.reason),
        )
        if sent.action == "hand-over":
            rated = connection.execute(
                "SELECT 1 FROM submissions WHERE group_id = :group AND annotator = :who "
                "UNION SELECT 1 FROM elsewhere WHERE group_id = :group AND annotator = :who",
                {"group": sent.subject, "who": sent.to},
            ).fetchone()
            if rated:
                raise Refused(409, f"{sent.to} has rated this group")
            assignment.hand_over(connection, sent.to, sent.subject, clock() + RESERVED)
        if sent.action == "one-more":
            connection.execute(
                "UPDATE groups SET wanted = "
                "1 + max(wanted, (SELECT count(*) FROM assignments a WHERE a.group_id = groups.group_id AND done = 1)) WHERE group_id = ?",
                (sent.subject,),
            )
    return {"done": sent.action}


@routes.get("/api/lead/hours.csv")
def hours(page: ThisPage, person: Holder) -> Response:
    """Active time by person and day as CSV."""
    if person.role != "lead":
        raise Refused(403, "this is for the lead")
    with page.database.separate() as connection:
        rows = [dict(row) for row in connection.execute(lead.HOURS)]
    body = csv_table(rows, ("annotator", "day", "seconds", "groups", "revisions", "skips"))
    return Response(body, media_type="text/csv", headers={"content-disposition": 'attachment; filename="hours.csv"'})


@routes.get("/api/lead/ratings.{layout}")
def ratings(layout: Literal["csv", "jsonl"], page: ThisPage, person: Holder) -> Response:
    """All current ratings in the canonical long format, by pseudonym. In CSV, an apostrophe in front of a comment that a spreadsheet would
    run as a formula."""
    if person.role != "lead":
        raise Refused(403, "this is for the lead")
    with page.database.separate() as connection:
        rows = [dict(row) for row in connection.execute(_EXPORT)]
    if layout == "csv":
        body, kind = csv_table((row | {"comment": _no_formula(row["comment"])} for row in rows), COLUMNS), "text/csv"
    else:
        body, kind = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "application/x-ndjson"
    return Response(body, media_type=kind, headers={"content-disposition": f'attachment; filename="ratings.{layout}"'})


def _no_formula(comment: str) -> str:
    return "'" + comment if comment.startswith(("=", "+", "-", "@", "\t", "\r")) else comment
