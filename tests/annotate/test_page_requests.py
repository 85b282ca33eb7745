"""No request to the rating page ends in a server error, whatever it contains."""

from __future__ import annotations

import contextlib
import json
import secrets
import sqlite3
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from page_run import Client, exported, page_run, plan, roster, serving

ODD = st.sampled_from(
    [10**30, -1, 1e308, float("inf"), float("nan"), True, None, "", "\ud800", "\x00", "a" * 32, "../x", [], {}, [[[[]]]], {"a": {}}]
)
VALUES = st.recursive(ODD | st.text(max_size=8) | st.integers(), lambda inner: st.lists(inner, max_size=3), max_leaves=5)
PATHS = (
    *("/api/work", "/api/previous?before=%ED%A0%80", "/api/group/%00", "/image/%ff", "/a/%ff"),
    *("/api/lead/ratings.xml", "/api/lead/group/x"),
)
KINDS = ("application/json", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "")
FIELDS = ("score", "comment", "seconds", "wall_seconds", "changes", "based_on", "group_id", "flag", "scores", "new")
REQUESTS = (("PUT", "/api/draft/{group}"), ("POST", "/api/submit"), ("POST", "/api/lead/decision"), ("DELETE", "/api/work"))
BODIES = st.binary(max_size=20) | st.dictionaries(st.sampled_from(["version", "revision", "body", "subject", "action"]), VALUES).map(
    lambda value: json.dumps(value).encode()
)


def answered(client: Client, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
    """Status and body of an answer."""
    return client.raw(method, path, body, headers)[:2]


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[Client, Client, dict[str, Any]]]:
    context = exported(page_run(tmp_path_factory.mktemp("page") / "run", groups=3, edits=2, plan=plan(overlap=0)))
    people = roster(context)
    with serving(context) as address:
        ada = Client(address, people.add("Ada")[1])
        yield ada, Client(address, people.add("Lead", "lead")[1]), ada.submission(ada.get("/api/work")["groups"][0])


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(field=st.sampled_from(FIELDS), value=VALUES)
def test_any_submission_is_stored_or_refused(clients: Any, field: str, value: Any) -> None:
    ada, _, sent = clients
    known = ada.get(f"/api/group/{sent['group_id']}")["said"]
    new = {"submission_id": secrets.token_hex(16), "based_on": known["revision"] if known else 0}
    body = {**sent, **new, "scores": [dict(score) for score in sent["scores"]]}
    if field == "score":
        body["scores"][0]["score"] = value
    else:
        body[field] = value
    status, answer = answered(ada, "POST", "/api/submit", json.dumps(body).encode())
    assert status in (200, 403, 409, 422) and (status == 200 or json.loads(answer)["message"]), (status, answer)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(request=st.sampled_from(REQUESTS), body=BODIES, lead=st.booleans(), kind=st.sampled_from(KINDS))
def test_any_body_is_answered(clients: Any, request: tuple[str, str], body: bytes, lead: bool, kind: str) -> None:
    method, path = request
    client = clients[1] if lead else clients[0]
    assert answered(client, method, path.format(group=clients[2]["group_id"]), body, **{"Content-Type": kind})[0] < 500


@pytest.mark.parametrize("kind", ["text/plain", "multipart/form-data", ""])
def test_a_body_that_is_not_said_to_be_json_is_refused(clients: Any, kind: str) -> None:
    for request, path in (("POST", "/api/submit"), ("PUT", f"/api/draft/{clients[2]['group_id']}")):
        for body in (json.dumps(clients[2]).encode(), b"\xff\xfe{}", b"\x80"):
            status, answer = answered(clients[0], request, path, body, **{"Content-Type": kind})
            assert status == 422 and "application/json" in json.loads(answer)["message"], (body, answer)


def test_odd_drafts_headers_and_paths(clients: Any) -> None:
    ada, lead, sent = clients
    draft = f"/api/draft/{sent['group_id']}"
    now = ada.get(f"/api/group/{sent['group_id']}")
    known = {"version": (now["draft"] or {"version": 0})["version"], "revision": (now["said"] or {"revision": 0})["revision"]}
    for body in ({"text": "\ud800"}, {"\ud800": 1}):
        assert answered(ada, "PUT", draft, json.dumps({**known, "body": body}).encode())[0] == 422
    for number in (10**30, 1e308):
        odd = {**sent, "submission_id": secrets.token_hex(16), "based_on": known["revision"], "changes": number}
        assert answered(ada, "POST", "/api/submit", json.dumps(odd).encode())[0] == 422
    for number in (float("nan"), float("inf")):
        assert answered(ada, "PUT", draft, json.dumps({**known, "body": {"seconds": number}}).encode())[0] == 422
    huge = [{**score, "score": 10**400} for score in sent["scores"]]
    odd = {**sent, "submission_id": secrets.token_hex(16), "based_on": known["revision"], "scores": huge}
    assert answered(ada, "POST", "/api/submit", json.dumps(odd).encode())[0] == 422
    assert answered(ada, "PUT", draft, b"[" * 100_000)[0] < 500
    for client in (ada, lead):
        for path in PATHS:
            assert answered(client, "GET", path)[0] < 500, path
        assert answered(client, "GET", "/api/work", **{"X-Annotator": "\xff", "Cookie": "annotate-x=\xff; =;"})[0] < 500
        with contextlib.suppress(ConnectionError):  # closed at once, so that the answer may not arrive
            assert answered(client, "POST", "/api/submit", b"{}", **{"Content-Length": "9" * 5000})[0] < 500
        assert answered(client, "GET", "/api/work")[0] < 500, "and the server goes on"


def test_what_is_not_there_and_a_locked_database_have_a_sentence(tmp_path: Path) -> None:
    context = exported(page_run(tmp_path / "run", groups=3, edits=2, plan=plan(overlap=0)))
    token = roster(context).add("Ada")[1]
    with serving(context) as address:
        ada = Client(address, token)
        assert ada.ask("GET", "/nope") == (404, {"message": "Not Found"})
        assert ada.ask("POST", "/", b"") == (405, {"message": "Method Not Allowed"})
        other = sqlite3.connect(context.run.path / "annotate" / "page" / "submissions.sqlite", isolation_level=None)
        with contextlib.closing(other) as holder:
            holder.execute("BEGIN IMMEDIATE")  # as a program that shows tables does while a cell is changed
            status, body, headers = ada.raw("GET", "/api/work")
            assert status == 503 and "database" in json.loads(body)["message"] and headers["retry-after"] == str(json.loads(body)["wait"])
        assert ada.get("/api/work")["groups"]
