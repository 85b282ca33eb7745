"""The rating page's server: a real one in a thread, asked over HTTP; each submission is stored once, under the right person."""

from __future__ import annotations

import csv
import json
import shutil
import sqlite3
import threading
import time
import xml.etree.ElementTree as xml
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from command import pipeline, refusal
from page_run import HOSTILE, Client, exported, gold_file, page_run, plan, roster, serving
from rated_run import make_run, rating_task_of, ratings_of, write_csv

from stages.annotate import step as annotate
from stages.annotate.config import AnnotateConfig, ExamRules, PlanConfig, QualityConfig, RemovalRules
from stages.annotate.packet import plan as plans
from stages.annotate.packet import rubric
from stages.annotate.page import exam, submissions
from stages.annotate.page.roster import Roster
from stages.annotate.page.session import RateLimit
from stages.annotate.quality import step as annotation_qc
from stages.annotate.ratings import ledger
from stages.annotate.ratings.gold import gold_cells
from stages.context import Context
from stages.engine.contracts import DIMENSIONS
from stages.engine.ids import content_id

CELLS = 7 * 2


def rows(context: Context, query: str, *values: Any) -> list[Any]:
    """What is in the database, read beside the server as ingest does."""
    path = context.run.path / "annotate" / "page" / "submissions.sqlite"
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
        return connection.execute(query, values).fetchall()


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Context:
    """Forty groups without gold or overlap."""
    return exported(page_run(tmp_path_factory.mktemp("page") / "run", groups=40, instruction=HOSTILE, plan=plan(overlap=0)))


# ---- one person


def test_a_group_is_stored_once_revised_on_purpose_and_never_by_mistake(work: Context) -> None:
    _, token = roster(work).add("Ada Lovelace")
    with serving(work) as address:
        ada = Client(address, token)
        first, upcoming = ada.get("/api/work")["groups"]
        assert first["group_id"] != upcoming["group_id"] and len(first["candidates"]) == 7
        sent = ada.submission(first)
        assert ada.ask("POST", "/api/submit", sent) == (200, {"revision": 1})
        assert ada.ask("POST", "/api/submit", sent) == (200, {"revision": 1})  # the answer was lost, the page asks again
        status, value = ada.ask("POST", "/api/submit", sent | {"comment": "another text under the same id"})
        assert status == 409 and "id" in value["message"]
        status, value = ada.ask("POST", "/api/submit", ada.submission(first, 1))
        assert (status, value["revision"]) == (409, 1)  # a second window, which knows no revision
        again = ada.get("/api/previous")
        assert again["group_id"] == first["group_id"]
        assert again["said"]["scores"] == {
            c["id"]: {s["dimension"]: s["score"] for s in sent["scores"] if s["candidate_id"] == c["id"]} for c in first["candidates"]
        }
        assert ada.submit(again, 4, comment="looked again") == {"revision": 2}
        assert ada.get("/api/work")["groups"][0]["group_id"] == upcoming["group_id"]
        assert ada.ask("GET", f"/api/previous?before={first['group_id']}")[0] == 404
    group = first["group_id"]
    assert rows(work, "SELECT revision FROM submissions WHERE group_id = ? ORDER BY revision", group) == [(1,), (2,)]
    assert rows(
        work, "SELECT count(*), min(score), max(score), sum(seconds) BETWEEN 122.9 AND 123.1 FROM ratings WHERE group_id = ?", group
    ) == [(CELLS, 4, 4, 1)]
    places = rows(work, "SELECT DISTINCT candidate_id, position FROM ratings WHERE group_id = ? ORDER BY position", group)
    assert places == [(c["id"], 1 + i) for i, c in enumerate(first["candidates"])]


def changed(sent: dict[str, Any], place: int = 0, **score: Any) -> dict[str, Any]:
    scores = [dict(entry) for entry in sent["scores"]]
    scores[place] |= score
    return sent | {"scores": scores}


BAD: dict[str, tuple[Any, str]] = {
    "a score out of scale": (lambda s: changed(s, score=5), "not on the scale 1 to 4"),
    "a score of 0": (lambda s: changed(s, score=0), "not on the scale"),
    "a text": (lambda s: changed(s, score="3"), "valid integer"),
    "half a score": (lambda s: changed(s, score=2.5), "not on the scale"),
    "true": (lambda s: changed(s, score=True), "valid integer"),
    "a missing score": (lambda s: s | {"scores": s["scores"][1:]}, "1 of 14 scores are missing"),
    "two scores of one cell": (lambda s: s | {"scores": [*s["scores"], s["scores"][0]]}, "two scores"),
    "a candidate of another group": (lambda s: changed(s, candidate_id="0" * 24), "not asked for in this group"),
    "an unknown dimension": (lambda s: changed(s, dimension="beauty"), "not asked for in this group"),
    "an id that is none": (lambda s: s | {"submission_id": "1"}, "pattern"),
    "a field that does not exist": (lambda s: s | {"annotator": "annotator-02"}, "Extra inputs"),
    "scores of what cannot be rated": (lambda s: s | {"flag": "unsafe"}, "has no scores"),
    "an unknown reason": (lambda s: s | {"flag": "bored", "scores": []}, "flag"),
    "negative seconds": (lambda s: s | {"seconds": -1.0}, "greater than or equal to 0"),
    "a control character": (lambda s: s | {"comment": "a\x00b"}, "control characters"),
    "an endless comment": (lambda s: s | {"comment": "a" * 5000}, "at most 4000"),
}


def test_what_is_not_whole_or_not_true_is_refused_with_its_reason(work: Context) -> None:
    _, token = roster(work).add("Bad Input")
    with serving(work) as address:
        client = Client(address, token)
        group = client.get("/api/work")["groups"][0]
        for name, (spoil, sentence) in BAD.items():
            status, value = client.ask("POST", "/api/submit", spoil(client.submission(group)))
            assert status == 422 and sentence in value["message"], (name, status, value)
        assert client.raw("POST", "/api/submit", b"{")[0] == 422
        assert client.raw("POST", "/api/submit", b" " * 300_000)[0] == 413
        assert client.ask("PUT", f"/api/draft/{group['group_id']}", {"version": 0, "revision": 0, "body": {"x": "y" * 40_000}})[0] == 413
        assert rows(work, "SELECT count(*) FROM submissions WHERE annotator = ?", client.who) == [(0,)]
        status, value = client.ask("POST", "/api/submit", client.submission(group, flag="image-missing", scores=[]))
        assert status == 422 and "the server has all images of this group" in value["message"], "a lost connection is no missing image"
        picture = work.run.path / "annotate" / "export" / "images" / group["candidates"][2]["image"].rpartition("/")[2]
        content = picture.read_bytes()
        picture.write_bytes(content[:-20])
        assert client.submit(group, flag="image-missing", scores=[], comment="the third picture") == {"revision": 1}
        picture.write_bytes(content)
    assert rows(work, "SELECT flag, comment FROM unrateable WHERE annotator = ?", client.who) == [("image-missing", "the third picture")]
    assert rows(work, "SELECT count(*) FROM ratings WHERE annotator = ?", client.who) == [(0,)]


def test_drafts_survive_and_two_windows_do_not_overwrite_each_other(work: Context) -> None:
    _, token = roster(work).add("Two Windows")
    with serving(work) as address:
        here, there = Client(address, token), Client(address, token)
        group = here.get("/api/work")["groups"][0]
        path, body = f"/api/draft/{group['group_id']}", {"scores": {"a": {"b": 3}}, "comment": HOSTILE}
        assert here.ask("PUT", path, {"version": 0, "revision": 0, "body": body}) == (200, {"version": 1})
        status, value = there.ask("PUT", path, {"version": 0, "revision": 0, "body": {}})
        assert (status, value["version"], value["draft"]) == (409, 1, body)
        assert there.get("/api/work")["groups"][0]["draft"] == {"version": 1, "body": body}
        there.submit(group)
        status, value = here.ask("PUT", path, {"version": 1, "revision": 0, "body": body})
        assert (status, value["revision"]) == (409, 1)
        assert here.get(f"/api/group/{group['group_id']}")["draft"] is None
        other = Client(address, roster(work).add("Third Window")[1])
        assert other.ask("PUT", path, {"version": 0, "revision": 0, "body": {}})[0] == 403
        assert other.ask("GET", f"/api/group/{group['group_id']}")[0] == 403


# ---- who may do what


def test_links_are_personal_revocable_and_not_mixed_up(work: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    people = roster(work)
    (eve, eves), (_, franks), (_, leads) = people.add("Eve"), people.add("Frank"), people.add("Lead", "lead")
    with serving(work) as address:
        client, frank = Client(address, eves), Client(address, franks)
        group = client.get("/api/work")["groups"][0]
        status, value = frank.ask("POST", "/api/submit", frank.submission(group))
        assert (status, value["message"]) == (403, "this group is not assigned to you")
        sent = client.submission(group)
        status, value = frank.ask("POST", "/api/submit", sent, **{"X-Annotator": eve.pseudonym})  # Frank's link was opened in Eve's browser
        assert (status, value["other"]) == (409, True)
        status, value = client.ask("POST", "/api/submit", sent, **{"X-Annotator": ""})  # from another site, which cannot send the header
        assert status == 409
        assert client.ask("GET", "/api/lead/summary")[0] == 403
        assert client.raw("GET", "/api/lead/ratings.csv")[0] == 403
        assert Client(address, leads).ask("POST", "/api/submit", sent)[0] == 403
        for link in ("nonsense", eves[:-1], "..%2f..%2froster.json"):
            assert Client(address).raw("GET", f"/a/{link}")[0] in (401, 404)
        nobody = Client(address)
        assert nobody.ask("GET", "/api/session")[0] == 401
        assert nobody.raw("GET", group["source"])[0] == 401
        people.revoke("Eve")
        status, value = client.ask("POST", "/api/submit", sent)
        assert status == 401 and "link" in value["message"]
        assert client.raw("GET", f"/a/{eves}")[0] == 401
        _, token = people.renew(eve.pseudonym)
        assert Client(address, token).who == eve.pseudonym
    assert rows(work, "SELECT count(*) FROM submissions WHERE annotator IN (?, ?)", eve.pseudonym, frank.who) == [(0,)]


def test_cookies_and_headers_leave_no_way_in(work: Context) -> None:
    _, token = roster(work).add("Header")
    with serving(work) as address:
        client = Client(address)
        _, body, headers = client.raw("GET", f"/a/{token}")
        assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(headers["set-cookie"].split("; "))
        assert token.encode() not in body and "Secure" not in headers["set-cookie"]
        client.open(token)
        group = client.get("/api/work")["groups"][0]
        for path in ("/", "/lead", "/static/page.js", "/api/session", group["source"], "/nowhere"):
            _, _, headers = client.raw("GET", path)
            assert "default-src 'none'" in headers["content-security-policy"] and "unsafe" not in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"
            assert "server" not in headers
        assert client.raw("GET", "/docs")[0] == client.raw("GET", "/openapi.json")[0] == 404


def test_only_images_of_the_work_are_served(work: Context) -> None:
    _, token = roster(work).add("Path")
    with serving(work) as address:
        client = Client(address, token)
        name = client.get("/api/work")["groups"][0]["source"].removeprefix("/image/")
        assert client.raw("GET", f"/image/{name}")[1].startswith(b"\x89PNG")
        up = [
            "../manifest.json",
            "..%2fmanifest.json",
            "%2e%2e/%2e%2e/plan.json",
            "../../page/roster.json",
            "/etc/passwd",
            "%2fetc%2fpasswd",
        ]
        for path in [*up, f"../images/{name}", f"{name}/..", f"{name}%00", ".", ""]:
            assert client.raw("GET", f"/image/{path}")[0] == 404, path
        for path in ("../app.py", "..%2fapp.py", "page.html"):
            assert client.raw("GET", f"/static/{path}")[0] == 404


def test_too_many_requests_wait(work: Context) -> None:
    (_, token), (_, others) = roster(work).add("Fast"), roster(work).add("Slow")
    with serving(work, requests_per_minute=6) as address:
        client = Client(address, token)  # one request of the six
        found = [client.raw("GET", "/api/work")]
        while found[-1][0] == 200:
            found.append(client.raw("GET", "/api/work"))
        assert len(found) >= 6 and found[-1][0] == 429  # later only on a machine so slow that the bucket fills up meanwhile
        assert 1 <= int(found[-1][2]["retry-after"]) <= 11
        assert Client(address, others).ask("GET", "/api/work")[0] == 200
        guesses = [client.raw("GET", "/a/guess")[0]]
        while guesses[-1] == 401:
            guesses.append(client.raw("GET", "/a/guess")[0])
        assert len(guesses) > 30 and guesses[-1] == 429


def test_the_bucket_fills_up_again() -> None:
    time = 0.0
    limit = RateLimit(60, clock=lambda: time)
    assert [limit.wait("a") for _ in range(61)] == [0.0] * 60 + [1.0]
    time = 0.5
    assert limit.wait("a") == pytest.approx(0.5) and limit.wait("b") == 0
    time = 1.0
    assert limit.wait("a") == 0 and limit.wait("a") > 0


def test_nothing_sent_to_annotators_unblinds_and_nothing_personal_leaves_the_roster(work: Context) -> None:
    people = roster(work)
    (grace, token), (_, leads) = people.add("Grace Hopper"), people.add("Lead Two", "lead")
    with serving(work) as address:
        client = Client(address, token)
        group = client.get("/api/work")["groups"][0]
        client.submit(group, comment="=1+1")
        sent = b"".join(client.raw("GET", path)[1] for path in ("/api/session", "/api/work", "/api/previous"))
        for secret in (b"editor", b"revision-7", b"settings", b"Grace", b"Ada", b"hidden", b"calibration"):
            assert secret not in sent, secret
        assert HOSTILE.encode() not in client.raw("GET", "/")[1]
        lead = Client(address, leads)
        table, lines = lead.raw("GET", "/api/lead/ratings.csv")[1].decode(), lead.raw("GET", "/api/lead/ratings.jsonl")[1].decode()
        assert "Grace" not in json.dumps(lead.get("/api/lead/summary"))
    for text in (table, lines):
        assert "Grace" not in text and grace.pseudonym in text
    mine = [row for row in csv.DictReader(table.splitlines()) if row["annotator_id"] == grace.pseudonym]
    assert [row["comment"] for row in mine] == ["'=1+1"] * CELLS  # a spreadsheet shows it and does not run it
    assert {json.loads(line)["comment"] for line in lines.splitlines() if grace.pseudonym in line} == {"=1+1"}
    holds = [path for path in work.run.path.rglob("*") if path.is_file() and b"Grace" in path.read_bytes()]
    assert [path.name for path in holds] == ["roster.json"]
    assert token not in holds[0].read_text() and holds[0].stat().st_mode & 0o077 == 0


def test_the_lead_s_file_is_ingested(work: Context) -> None:
    people = roster(work)
    (person, token), (_, leads) = people.add("Ingest"), people.add("Lead Three", "lead")
    with serving(work) as address:
        client = Client(address, token)
        client.submit(client.get("/api/work")["groups"][0])
        path = work.run.path / "downloaded.csv"
        path.write_bytes(Client(address, leads).raw("GET", "/api/lead/ratings.csv")[1])
    result = annotate.ingest(work, [path])
    assert result.index.quarantined == {}
    ledger = [row for row in work.run.step("annotate").read("ratings").to_pylist() if row["annotator"] == person.pseudonym]
    assert len(ledger) == CELLS
    stored = {
        (c, d): s for c, d, s in rows(work, "SELECT candidate_id, dimension, score FROM ratings WHERE annotator = ?", person.pseudonym)
    }
    assert {(row["candidate_id"], row["dimension"]): row["score"] for row in ledger} == stored


# ---- many people


def test_thirty_people_at_once_lose_double_and_mix_up_nothing(tmp_path: Path) -> None:
    context = exported(page_run(tmp_path / "run", groups=90, edits=3, plan=plan(overlap=0.5)))
    people = [roster(context).add(f"Person {n}") for n in range(30)]
    sent: dict[tuple[str, str, str, str], int] = {}
    failures: list[BaseException] = []

    def work_on(address: str, token: str) -> None:
        try:
            client = Client(address, token)
            while groups := client.get("/api/work")["groups"]:
                body = client.submission(groups[0])
                client.ask("PUT", f"/api/draft/{groups[0]['group_id']}", {"version": 0, "revision": 0, "body": {"scores": {}}})
                for _ in range(2):  # the first answer is taken for lost
                    status, value = client.ask("POST", "/api/submit", body)
                    assert (status, value) == (200, {"revision": 1}), value
                sent.update({(client.who, body["group_id"], s["candidate_id"], s["dimension"]): s["score"] for s in body["scores"]})
        except BaseException as error:
            failures.append(error)

    with serving(context) as address:
        threads = [threading.Thread(target=work_on, args=(address, token)) for _, token in people]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures, failures
    stored = rows(context, "SELECT annotator, group_id, candidate_id, dimension, score FROM ratings")
    assert len(stored) == len(sent) and {tuple(row[:4]): row[4] for row in stored} == sent
    wanted = plans.read(context.run.path / "annotate" / "plan.json").wanted
    assert Counter(row[0] for row in rows(context, "SELECT group_id FROM submissions")) == wanted
    assert 120 < sum(wanted.values()) < 150 and len({row[0] for row in stored}) > 15


def test_a_group_that_was_left_goes_to_another_and_a_late_submission_still_counts(tmp_path: Path) -> None:
    context = exported(page_run(tmp_path / "run", groups=1, plan=plan(overlap=0)))
    (_, first), (_, second) = roster(context).add("First"), roster(context).add("Second")
    with serving(context) as address:
        slow, other = Client(address, first), Client(address, second)
        (group,) = slow.get("/api/work")["groups"]
        assert other.get("/api/work")["groups"] == []
    with sqlite3.connect(context.run.path / "annotate" / "page" / "submissions.sqlite") as connection:
        connection.execute("UPDATE assignments SET lease_ends = 0")  # half an hour later
    with serving(context) as address:
        slow, other = Client(address, first), Client(address, second)
        (given,) = other.get("/api/work")["groups"]
        assert given["group_id"] == group["group_id"]
        assert [c["id"] for c in given["candidates"]] != [c["id"] for c in group["candidates"]]  # everybody has an order of their own
        other.submit(given)
        assert slow.submit(group) == {"revision": 1}
        assert slow.get("/api/work")["groups"] == [] == other.get("/api/work")["groups"]
    assert rows(context, "SELECT count(DISTINCT annotator) FROM ratings") == [(2,)]


def test_a_clock_that_is_set_back_keeps_no_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the server runs; and before it starts, where the clock was wrong by more than any lease."""
    context = exported(page_run(tmp_path / "run", groups=1, plan=plan(overlap=0)))
    ada, ben, cyd = (roster(context).add(name)[1] for name in ("Ada", "Ben", "Cyd"))
    real = time.time
    with serving(context, lease_minutes=0.05) as address:
        (group,) = Client(address, ada).get("/api/work")["groups"]
        monkeypatch.setattr(time, "time", lambda: real() - 7200)
        assert Client(address, ben).get("/api/work")["groups"] == []
        time.sleep(3.1)
        assert Client(address, ben).get("/api/work")["groups"][0]["group_id"] == group["group_id"]
    with sqlite3.connect(context.run.path / "annotate" / "page" / "submissions.sqlite") as connection:
        connection.execute("UPDATE assignments SET lease_ends = lease_ends + 30 * 86400 WHERE annotator = 'annotator-02'")
    with serving(context) as address:
        assert Client(address, cyd).get("/api/work")["groups"][0]["group_id"] == group["group_id"]


def test_ratings_of_a_server_with_a_wrong_clock_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can correct the times in the database: what was confirmed counts, and the last submission of a group is the last one."""
    context = exported(page_run(tmp_path / "run", groups=2, edits=2, plan=plan(overlap=0)))
    page = context.run.path / "annotate" / "page" / "submissions.sqlite"
    with serving(context) as address:
        ada = Client(address, roster(context).add("Ada")[1])
        for days, score in ((2, 1), (-2, 2), (0, 3), (-2, 4)):
            monkeypatch.setattr(submissions, "now", lambda days=days: (datetime.now(UTC) + timedelta(days)).isoformat())
            ada.submit(ada.get("/api/work")["groups"][0] if days == 2 else ada.get("/api/previous"), score)
            found = annotate.ingest(context, [page])
            assert (found.new[0].accepted, found.new[0].quarantined) == (4, {})
            assert bool(days) == any("the server's clock was wrong" in warning for warning in found.warnings)
            assert set(ledger.current(context.run.step("annotate"))["score"].to_pylist()) == {score}


# ---- gold


def same_as_in_quality_control(context: Context, people: list[dict[str, Any]]) -> int:
    """The lead's figures of each person against those that quality control has after an ingest; how many were compared."""
    annotate.ingest(context, [context.run.path / "annotate" / "page" / "submissions.sqlite"])
    annotation_qc.run(context)
    shown = {person["annotator"]: person for person in people}
    found = json.loads((context.run.path / "annotation-qc" / "quality.json").read_text())["annotators"]
    for row in found:
        person, dimension = shown[row["annotator"]], row["dimension"]
        assert row["gold"] == person["hidden_gold"][dimension]
        assert [row[name]["value"] for name in ("severity", "kappa")] == [person[name][dimension] for name in ("severity", "kappa")]
        assert (row["drift"], row["compared_groups"]) == (person["drift"][dimension], person["shared"])
        assert (row["status"], row["reasons"]) == (person["status"], person["remarks"])
    return len(found)


@pytest.fixture
def golden(tmp_path: Path) -> tuple[Context, dict[tuple[str, str, str], int]]:
    """Ten groups, of which seven are gold: one for training, two exams of two, two hidden; one of the rest calibrates."""
    context = page_run(tmp_path / "run", groups=10)
    groups = [content_id("source", number) for number in range(7)]
    path, scores = gold_file(tmp_path / "gold.csv", context, groups)
    settings = PlanConfig(gold=str(path), training_groups=1, exam_groups=2, hidden_gold=0.9, calibration=1, overlap=0)
    flow = context.flow.model_copy(update={"annotate": context.flow.annotate.model_copy(update={"plan": settings})})
    return exported(Context(context.run, flow, context.cluster)), scores


def test_training_shows_gold_an_exam_admits_and_gold_hides_in_production(golden: Any) -> None:
    context, gold = golden
    people = roster(context)
    (_, goods), (_, bads), (_, leads) = people.add("Good"), people.add("Bad"), people.add("Lead", "lead")
    drawn = plans.read(context.run.path / "annotate" / "plan.json")
    with serving(context) as address:
        good, bad, lead = Client(address, goods), Client(address, bads), Client(address, leads)

        def knows(group: Any) -> Any:
            return lambda candidate, dimension: gold.get((group["group_id"], candidate, dimension), 2)

        work = good.get("/api/work")
        assert (work["stage"], work["total"], [g["group_id"] for g in work["groups"]]) == ("training", 1, list(drawn.training))
        assert "experts" not in json.dumps(work)
        answer = good.submit(work["groups"][0], 2)
        assert len(answer["feedback"]) == CELLS
        for cell in answer["feedback"]:
            assert cell["accepted"] == [gold[drawn.training[0], cell["candidate_id"], cell["dimension"]]]
            assert cell["agrees"] == (cell["accepted"] == [2]) and cell["reasons"] == ["the hat is missing"]
        status, value = good.ask("POST", "/api/submit", good.submission(work["groups"][0], 3, based_on=1))
        assert status == 409 and "once" in value["message"]
        verdicts = []
        for _ in drawn.exams[0]:
            (group, *_) = good.get("/api/work")["groups"]
            assert group["mode"] == "exam" and group["group_id"] in drawn.exams[0]
            lead.ask("POST", "/api/lead/decision", {"subject": good.who, "action": "pause", "reason": ""})
            path, body = f"/api/draft/{group['group_id']}", {"scores": {}, "comment": "half"}
            assert good.ask("PUT", path, {"version": 0, "revision": 0, "body": body})[0] == 200
            status, value = good.ask("POST", "/api/submit", good.submission(group, knows(group)))
            assert status == 403 and value["message"].startswith("the lead of the project has paused your work; your scores of this")
            lead.ask("POST", "/api/lead/decision", {"subject": good.who, "action": "resume", "reason": ""})
            assert good.get("/api/work")["groups"][0]["draft"]["body"] == body
            verdicts.append(good.submit(group, knows(group)))
        assert verdicts == [{"revision": 1}, {"revision": 1, "exam": "passed"}]
        seen = []
        while groups := good.get("/api/work")["groups"]:
            assert groups[0]["mode"] == "rating"
            good.submit(groups[0], knows(groups[0]))
            seen.append(groups[0]["group_id"])
        assert seen[0] == drawn.calibration[0]
        assert set(drawn.hidden) & set(seen) and set(seen) <= {*drawn.calibration, *drawn.wanted, *drawn.hidden}
        assert good.get("/api/previous")["group_id"] == seen[-1]

        bad.submit(bad.get("/api/work")["groups"][0], 3)
        answers = [bad.submit(bad.get("/api/work")["groups"][0], 3) for _ in range(4)]
        assert [answer.get("exam") for answer in answers] == [None, "next-form", None, "failed"]
        nothing = {"stage": "failed", "groups": [], "done": 0, "total": 0, "project": 0, "rubric_version": "v1"}
        assert bad.get("/api/work") | {"project": 0} == nothing
        summary = {person["annotator"]: person for person in lead.get("/api/lead/summary")["people"]}
        assert (summary[good.who]["stage"], summary[bad.who]["stage"]) == ("production", "failed")
        assert summary[good.who]["hidden_gold"]["visual_quality"]["exact"] == 1.0
        assert summary[bad.who]["exams"]["exam-1"]["visual_quality"]["kappa"] == 0.0
        assert lead.ask("POST", "/api/lead/decision", {"subject": bad.who, "action": "certify", "reason": "talked"})[0] == 200
        open_group = bad.get("/api/work")["groups"][0]
        assert open_group["group_id"] == drawn.calibration[0]
        assert lead.ask("POST", "/api/lead/decision", {"subject": bad.who, "action": "pause", "reason": ""})[0] == 200
        assert bad.get("/api/work")["stage"] == "paused"
        assert bad.ask("POST", "/api/submit", bad.submission(open_group))[0] == 403
        assert rows(context, "SELECT count(*) FROM submissions WHERE annotator = ? AND round = 'calibration'", bad.who) == [(0,)]
        assert lead.ask("POST", "/api/lead/decision", {"subject": "x", "action": "pause", "reason": ""})[0] == 422
        summary = lead.get("/api/lead/summary")["people"]
    assert summary[0]["hidden_gold"]["visual_quality"]["groups"] >= 1
    assert same_as_in_quality_control(context, summary) == 2, "one person, two dimensions; the other never rated"
    counted = {row[0] for row in rows(context, "SELECT DISTINCT round FROM ratings")}
    assert counted == {"calibration", "production"}  # neither training nor exams are ratings


def test_exam_figures_by_hand() -> None:
    gold = {("a", "q"): (1.0,), ("b", "q"): (2.0, 2.0, 3.0), ("c", "q"): (4.0,), ("d", "q"): (3.0,)}
    scores = {("g", "a", "q"): 1, ("g", "b", "q"): 3, ("g", "c", "q"): 2, ("g", "d", "q"): 3}
    found = exam.compare(scores, gold, ["q"], [1, 2, 3, 4])
    # gold 1 2 4 3 against 1 3 2 3: squared distances 0 1 4 0; expected over the margins (1,2,3,4) x (1,2,3,3): 32 / 4
    figures = found["q"]
    assert figures is not None
    assert vars(figures) == {
        "groups": 1,
        "cells": 4,
        "kappa": 1 - 5 / 8,
        "exact": 0.75,
        "within_one": 0.75,
        "severity": pytest.approx(-1 / 3),
    }
    assert not exam.passed(found, ExamRules())
    lenient = ExamRules(kappa=0.3, exact=0.75, within_one=0.75, severity=0.34)
    assert exam.passed(found, lenient)
    assert not exam.passed({"q": replace(figures, kappa=None)}, lenient)
    assert not exam.passed(found | {"other": None}, lenient)


# ---- the lead


def test_the_lead_sees_agreement_disagreement_and_asks_for_a_third_person(tmp_path: Path) -> None:
    rules = QualityConfig(window=2, least_groups=2, remove=RemovalRules(kappa=-1))
    context = exported(page_run(tmp_path / "run", groups=4, plan=plan(overlap=1.0), quality=rules))
    people = roster(context)
    tokens = [people.add(name)[1] for name in ("One", "Two", "Three")]
    with serving(context) as address:
        one, two, three = (Client(address, token) for token in tokens)
        lead = Client(address, people.add("Lead", "lead")[1])
        assert lead.get("/api/lead/summary")["quality"]["all"] == {}
        apart = ""
        while groups := one.get("/api/work")["groups"]:
            apart = apart or groups[0]["group_id"]
            one.submit(groups[0], 1 if groups[0]["group_id"] == apart else None, comment=HOSTILE)
        told = {s["group_id"]: one.get(f"/api/group/{s['group_id']}")["said"]["scores"] for s in [{"group_id": g} for g in content_ids(4)]}
        while groups := two.get("/api/work")["groups"]:
            group = groups[0]["group_id"]
            two.submit(groups[0], 4 if group == apart else lambda c, d, group=group: told[group][c][d])
        summary = lead.get("/api/lead/summary")
        figures = summary["quality"]["accepted"]["production"]
        assert summary["progress"] | {"groups_per_day": 0} == {
            "groups": 4, "places": 8, "filled": 8, "ratings": 8 * CELLS, "groups_per_day": 0, "days_left": 0.0, "shared_groups": 4,
            "connected": True, "sets": "", "expired": 0,
        }  # fmt: skip
        (entry,) = summary["queued"]
        assert (entry["group_id"], entry["raters"]) == (apart, [one.who, two.who]) and "differ by 3.00 levels" in entry["message"]
        assert figures["visual_quality"]["exact"]["value"] == 0.75 and figures["visual_quality"]["exact"]["low"] < 0.75
        assert {person["drift"]["visual_quality"] for person in summary["people"]} == {-1.5, 1.5, None}
        assert any("kappa with the others" in remark for remark in summary["people"][0]["remarks"])
        assert same_as_in_quality_control(context, summary["people"]) == 4
        biases = {person["annotator"]: person["severity"]["visual_quality"] for person in summary["people"]}
        assert biases == {one.who: -0.75, two.who: 0.75, three.who: None}
        confusion = summary["confusion"]["visual_quality"]
        assert sum(map(sum, confusion)) == 2 * 4 * 7 and confusion[0][3] == confusion[3][0] == 7
        assert three.get("/api/work")["groups"] == []
        assert lead.ask("POST", "/api/lead/decision", {"subject": apart, "action": "one-more", "reason": "far apart"})[0] == 200
        assert [group["group_id"] for group in three.get("/api/work")["groups"]] == [apart]
        shown = lead.get(f"/api/lead/group/{apart}")
        assert [entry["comment"] for entry in shown["said"]] == [HOSTILE, ""]
    with serving(context) as address:  # the third place outlives a restart
        third, lead = Client(address, tokens[2]), Client(address, people.add("Other lead", "lead")[1])
        (group,) = third.get("/api/work")["groups"]
        assert group["group_id"] == apart
        third.submit(group, 1)
        summary = lead.get("/api/lead/summary")
        assert (summary["queued"], summary["disputed"]) == ([], {apart: CELLS}), "with three raters it is for an adjudicator"


def content_ids(count: int) -> list[str]:
    return [content_id("source", number) for number in range(count)]


# ---- plan, packet, commands


def test_roles_are_drawn_before_anybody_rates_and_do_not_move(tmp_path: Path) -> None:
    context = page_run(tmp_path / "run", groups=40, edits=2, plan=plan(overlap=0.3, calibration=3))
    annotate.export(context, limit=20)
    few = plans.read(context.run.path / "annotate" / "plan.json")
    annotate.export(context)
    many = plans.read(context.run.path / "annotate" / "plan.json")
    assert few.calibration == many.calibration and len(few.calibration) == 3
    assert list(many.wanted.items())[:17] == list(few.wanted.items())
    assert set(many.wanted.values()) == {1, 2} and 3 <= sum(n == 2 for n in many.wanted.values()) <= 20
    chosen = tmp_path / "next.csv"
    group = list(many.wanted)[5]
    chosen.write_text(f"rank,group_id\n1,{group}\n")
    annotate.export(context, groups=chosen)
    again = plans.read(context.run.path / "annotate" / "plan.json")
    assert next(iter(again.wanted)) == group and dict(again.wanted) == dict(many.wanted), "a list adds and comes first; nothing is lost"
    assert again.calibration == many.calibration
    annotate.export(context, groups=chosen, replace=True)
    assert plans.read(context.run.path / "annotate" / "plan.json").groups == [group]
    chosen.write_text("nonsense\n")
    with pytest.raises(ValueError, match=r"next\.csv line 1: there is no group 'nonsense'"):
        annotate.export(context, groups=chosen)
    chosen.write_text("")
    with pytest.raises(ValueError, match="has no group"):
        annotate.export(context, groups=chosen)


def test_calibration_groups_that_go_into_another_round_are_not_replaced(tmp_path: Path) -> None:
    """Otherwise everybody would have to rate further calibration groups in the middle of the project."""
    context, chosen = page_run(tmp_path / "run", groups=12, plan=plan(calibration=4)), tmp_path / "chosen.csv"
    annotate.export(context)
    path = context.run.path / "annotate" / "plan.json"
    first = plans.read(path)
    chosen.write_text("".join(f"{group}\n" for group in first.calibration[:2]))
    annotate.export(context, groups=chosen, round="benchmark")
    assert plans.read(path).calibration == first.calibration[2:] and plans.read(path).calibrated == sorted(first.calibration[:2])
    chosen.write_text(f"{first.calibration[3]}\n")
    annotate.export(context, groups=chosen, round="ranking")
    annotate.export(context)
    last = plans.read(path)
    assert last.calibration == first.calibration[2:3] and {*last.wanted} == {*first.wanted, *last.calibrated}


def test_gold_that_cannot_work_is_refused(tmp_path: Path) -> None:
    context = page_run(tmp_path / "run", groups=5)
    work = rating_task_of(context)
    groups = list(work.sampled)
    path, _ = gold_file(tmp_path / "gold.csv", context, groups)
    lines = path.read_text().splitlines()
    with pytest.raises(ValueError, match=r"has 5 gold groups, but training_groups and 2 forms of exam_groups need 35"):
        plans.draw(work, groups, PlanConfig(gold=str(path)), plans.read_gold(AnnotateConfig(plan=PlanConfig(gold=str(path))), work), seed=0)
    path.write_text("\n".join([lines[0], lines[1].replace("visual_quality", "beauty").replace("instruction_following", "beauty")]) + "\n")
    with pytest.raises(ValueError, match=r"gold\.csv line 2: there is no dimension 'beauty'"):
        plans.read_gold(AnnotateConfig(plan=PlanConfig(gold=str(path))), work)
    path.write_text("\n".join([lines[0], *lines[1::3]]) + "\n")  # one expert instead of three
    with pytest.raises(ValueError, match="has 3 experts within one level"):
        plans.read_gold(AnnotateConfig(plan=PlanConfig(gold=str(path))), work)
    alike = {group: {c: {d: plans.GoldCell((3.0,)) for d in DIMENSIONS} for c in work.sampled[group]} for group in groups}
    with pytest.raises(ValueError, match="exam form 1 every gold score of instruction_following is the same"):
        plans.draw(work, groups, PlanConfig(gold="g.csv", training_groups=1, exam_groups=2), alike, seed=0)


def test_gold_of_a_file_is_gold_of_quality_control(tmp_path: Path) -> None:
    """A level is 1 on a scale from 1 to 5 by tenths; 3.1 - 2.1 is more than 1 by the last bit. Adjudications and rankings make no gold."""
    context = make_run(tmp_path / "run", groups=2, simulate=None, scale_max=5, scale_step=0.1)
    work = rating_task_of(context)
    first, second = work.sampled
    rows: list[dict[str, Any]] = [
        row | {"round": "benchmark", "comment": ""} for name in ("a", "b", "c") for row in ratings_of(work, name, [first], score=3)
    ]
    for row in rows[: len(rows) // 3]:
        row["score"] = 2.1
    for row in rows[len(rows) // 3 :]:
        row["score"] = 3.1
    rows += [row | {"round": "adjudication", "comment": "wrong"} for row in ratings_of(work, "d", [first], score=5)]
    rows += [row | {"round": "ranking", "comment": "rank"} for name in ("a", "b", "c") for row in ratings_of(work, name, [second], score=1)]
    path = write_csv(tmp_path / "gold.csv", rows)
    settings = context.flow.annotate.model_copy(update={"plan": PlanConfig(gold=str(path))})
    found = plans.read_gold(settings, work)
    assert list(found) == [first] and {cell.scores for of in found[first].values() for cell in of.values()} == {(2.1, 3.1, 3.1)}
    assert {cell.reasons for of in found[first].values() for cell in of.values()} == {()}
    annotate.ingest(context, [path])
    ratings = context.run.step("annotate").read("ratings")
    assert plans.flat(found) == gold_cells(ratings, ("a", "b", "c", "d"), 3, work.scale.levels)


def test_label_studio_gets_tasks_and_a_configuration_that_fit_together(work: Context) -> None:
    folder = work.run.path / "annotate" / "export"
    tasks = json.loads((folder / "label-studio" / "tasks.json").read_text())
    view = xml.parse(folder / "label-studio" / "labeling-config.xml").getroot()
    assert len(tasks) == 40
    shown = {element.get("name"): element.get("value") for element in view.iter() if element.get("value", "").startswith("$")}
    assert set(shown) == {"instruction", "source", *(f"edit_{i}" for i in range(7))}
    choices = {element.get("name"): element for element in view.iter("Choices")}
    assert set(choices) == {f"{d}_{i}" for d in DIMENSIONS for i in range(7)}
    assert all(c.get("required") == "true" and c.get("toName") == f"edit_{n.rsplit('_')[-1]}" for n, c in choices.items())
    assert [[c.get("value") for c in control] for control in choices.values()] == [["4", "3", "2", "1"]] * 14
    sampled = rating_task_of(work).sampled
    for task in tasks:
        data = task["data"]
        assert all(value[1:] in data for value in shown.values())
        assert [data[f"cid{i}"] for i in range(7)] == list(sampled[data["group_id"]])
        for name in ("source", *(f"c{i}" for i in range(7))):
            address = data[name].split('"')[1]
            assert address.startswith("/data/local-files/?d=images/") and (folder / address.partition("?d=")[2]).is_file()
    assert tasks[0]["data"]["instruction"] == HOSTILE


def test_the_rubric_is_data_not_markup(work: Context) -> None:
    found = rubric.blocks((work.run.path / "annotate" / "export" / "RUBRIC.md").read_text())
    assert [block["kind"] for block in found[:2]] == ["h1", "p"]
    assert {"kind": "row", "cells": [[["4", False]], [["Very good", False]]]} in found
    good = next(block for block in found if block["kind"] == "li")
    assert good["cells"][0][0] == ["4 Very good", True]
    assert sum(block["kind"] == "row" for block in found) == 5 + 7  # two tables with their heads, without rules
    text = (work.run.path / "annotate" / "export" / "RUBRIC.md").read_text()
    criteria = {name: section.criteria for name, section in rubric.sections(text, DIMENSIONS).items()}
    assert [sorted(of) for of in criteria.values()] == [["1", "2", "3", "4"]] * 2
    assert criteria["visual_quality"]["4"] == "nothing shows that the picture was edited."
    assert rubric.blocks("a <b>\nc **d**") == [{"kind": "p", "cells": [[["a <b>", False], [" c ", False], ["d", True]]]}]


def test_the_roster_by_commands(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    said = pipeline("annotate", "roster", "add", "--run", run, "Ada Lovelace", "--home", "https://rate.example/").output
    pseudonym, token = said.split()[0], said.split("/a/")[1].strip()
    assert pseudonym == "annotator-01" and "https://rate.example/a/" in said
    people = Roster(run / "annotate" / "page" / "roster.json")
    assert people.of_token(token) is not None and people.of_token(token[:-1]) is None
    assert "is on the roster" in refusal("annotate", "roster", "add", "--run", run, "Ada Lovelace")
    assert "ADA Lovelace is on the roster as Ada Lovelace; `pipe" in refusal("annotate", "roster", "add", "--run", run, "ADA Lovelace")
    assert "has 100,000 characters; a name has at most 200" in refusal("annotate", "roster", "add", "--run", run, "x" * 100_000)
    assert "lead-01" in pipeline("annotate", "roster", "add", "--run", run, "Boss", "--lead").output
    for name in ("a\x07", "Ada\nEve", "\u200b", "\udcff", " ", "annotator-02", "Lead-7"):
        assert "give the name of the person" in refusal("annotate", "roster", "add", "--run", run, name)
    pipeline("annotate", "roster", "revoke", "--run", run, "annotator-01")
    assert people.of_token(token) is None
    listed = pipeline("annotate", "roster", "list", "--run", run).output
    assert "revoked" in listed and "Boss" in listed and token not in listed
    renewed = pipeline("annotate", "roster", "renew", "--run", run, "Ada Lovelace").output.split("/a/")[1].strip()
    assert people.of_token(token) is None and people.of_token(renewed) is not None
    assert "is not on the roster" in refusal("annotate", "roster", "revoke", "--run", run, "Nobody")
    sound = people.path.read_text()
    for damaged in ("[", "5", "null", '["a"]', '[{"nme": "x"}]', sound.replace('"name": "Boss"', '"name": null')):
        people.path.write_text(damaged)
        assert people.of_token(renewed) is not None, "a server goes on with the people that it read before"
        assert "restore it from a backup" in refusal("annotate", "roster", "list", "--run", run)
    people.path.write_text(sound)
    shutil.copytree(run / "annotate" / "page", run / "annotate" / "page" / "before-restore-2026")
    people.path.write_text("[]")
    pipeline("annotate", "roster", "add", "--run", run, "Jos\u00e9 \u5c71\u7530", "--lead")
    assert "is on the roster" in refusal("annotate", "roster", "add", "--run", run, "Jose\u0301 \u5c71\u7530"), "in another spelling"
    assert "annotator-02" in pipeline("annotate", "roster", "add", "--run", run, "Frank").output
    assert "there is no run directory" in refusal("annotate", "roster", "list", "--run", tmp_path / "elsewhere")


def test_serve_refuses_in_one_sentence_what_cannot_be_served(tmp_path: Path, work: Context) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("name: x\n")
    run = tmp_path / "run"
    assert "--expose" in refusal("annotate", "serve", "--run", run, "--config", config, "--host", "0.0.0.0")
    assert "pipeline annotate export" in refusal("annotate", "serve", "--run", run, "--config", config)
    with serving(work) as address:
        path = work.run.path
        assert "another `pipeline annotate serve`" in refusal("annotate", "serve", "--run", path, "--config", config)
    port = address.rpartition(":")[2]
    with serving(work, port=int(port)):
        elsewhere = exported(page_run(tmp_path / "second", groups=2))
        assert f"port {port}" in refusal(
            "annotate", "serve", "--run", elsewhere.run.path, "--config", config, f"annotate.serve.port={port}"
        )
    with sqlite3.connect(elsewhere.run.path / "annotate" / "page" / "submissions.sqlite") as connection:
        connection.execute("UPDATE meta SET value = 'another'")
    assert "contains ratings of project another" in refusal("annotate", "serve", "--run", elsewhere.run.path, "--config", config)
