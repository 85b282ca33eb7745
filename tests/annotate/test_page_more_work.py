"""Exports while people rate: they add to the plan, the running server takes them up, and what anybody has open stays whole."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from page_run import Client, page_run, plan, roster, serving

from stages.annotate import step as annotate
from stages.annotate.packet import plan as plans
from stages.annotate.page import packet as packets
from stages.context import Context


def database(context: Context) -> Path:
    return context.run.path / "annotate" / "page" / "submissions.sqlite"


def listed(path: Path, groups: list[str]) -> Path:
    path.write_text("\n".join(["group_id", *groups]) + "\n")
    return path


def finish(client: Client, score: int | None = None) -> list[str]:
    """Rate everything that the page assigns; returns the groups."""
    seen: list[str] = []
    while groups := client.get("/api/work")["groups"]:
        assert groups[0]["group_id"] not in seen
        seen.append(groups[0]["group_id"])
        client.submit(groups[0], score)
    return seen


def test_reannotation_is_exported_while_production_goes_on(tmp_path: Path) -> None:
    context = page_run(tmp_path / "run", groups=9, edits=2, plan=plan(overlap=0))
    annotate.export(context, limit=7)
    people = [roster(context).add(name)[1] for name in ("Ada", "Ben", "Cyd")]
    with serving(context) as address:
        ada, ben, cyd = (Client(address, token) for token in people)
        (first, *_) = ada.get("/api/work")["groups"]
        ada.submit(first)
        annotate.ingest(context, [database(context)])
        mine, upcoming = ada.get("/api/work")["groups"]
        again = first["group_id"]
        annotate.export(context, groups=listed(tmp_path / "list.csv", [again]))

        for group in (mine, upcoming, first):
            for image in (group["source"], *(candidate["image"] for candidate in group["candidates"])):
                assert ada.raw("GET", image)[0] == 200, "a picture of an open group is gone"
        assert [group["group_id"] for group in ada.get("/api/work")["groups"]] == [mine["group_id"], upcoming["group_id"]]
        (asked, *_) = ben.get("/api/work")["groups"]
        assert asked["group_id"] == again, "the running server takes the list up, and it comes first"
        assert cyd.get("/api/work")["groups"][0]["group_id"] not in (again, mine["group_id"], upcoming["group_id"])
        assert ada.submit(mine) == {"revision": 1} and ben.submit(asked) == {"revision": 1}
        annotate.export(context)  # the rest of the groups
        rated = [finish(client) for client in (ada, ben, cyd)]
    with sqlite3.connect(database(context)) as connection:
        found = connection.execute("SELECT group_id, annotator, round FROM submissions ORDER BY 1, 3").fetchall()
    assert len(found) == 10 and sum(map(len, rated)) == 7
    assert [row[1:] for row in found if row[0] == again] == [("annotator-01", "production"), ("annotator-02", "reannotation")]
    assert {row[0] for row in found} == set(packets.load(context.run.path / "annotate").groups)


def test_an_export_while_another_program_holds_the_database_is_taken_up_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, timeout=0.2))  # SQLite waits for five seconds
    context = page_run(tmp_path / "run", groups=2, edits=2, plan=plan(overlap=0))
    annotate.export(context, limit=1)
    with serving(context) as address:
        ada = Client(address, roster(context).add("Ada")[1])
        finish(ada)
        with closing(sqlite3.connect(database(context), isolation_level=None)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            annotate.export(context)
            assert ada.ask("GET", "/api/work")[0] == 503
        assert len(finish(ada)) == 1


def test_an_export_heals_the_packet_and_one_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    context = page_run(tmp_path / "run", groups=6, edits=2, plan=plan(overlap=0, calibration=1))
    annotate.export(context, limit=3)
    folder = context.run.path / "annotate"
    before = plans.read(folder / "plan.json")
    (_, token), (_, leads) = roster(context).add("Ada"), roster(context).add("Lead", "lead")
    with serving(context) as address:
        ada, lead = Client(address, token), Client(address, leads)
        (group, *_) = ada.get("/api/work")["groups"]
        assert group["group_id"] == before.calibration[0]
        ada.submit(group)
        annotate.ingest(context, [database(context)])
        name = group["source"].rpartition("/")[2]
        (folder / "export" / "images" / name).unlink()
        assert ada.raw("GET", group["source"])[0] == 404
        annotate.export(context, groups=listed(tmp_path / "list.csv", before.groups))
        assert ada.raw("GET", group["source"])[0] == 200
        assert plans.read(folder / "plan.json") == before, "everybody rates a calibration group anyway"

        (open_group, *_) = ada.get("/api/work")["groups"]
        whole = (folder / "plan.json").read_text()
        (folder / "plan.json").write_text(whole.replace("wanted", "unwanted"))
        assert ada.get("/api/work")["groups"][0]["group_id"] == open_group["group_id"]
        assert "the latest export was not taken up" in lead.get("/api/lead/summary")["problem"]
        (folder / "plan.json").write_text(whole)
        assert ada.get("/api/work")["stage"] == "rating" and lead.get("/api/lead/summary")["problem"] == ""


def test_people_who_work_in_step_are_connected_by_the_overlap(tmp_path: Path) -> None:
    context = page_run(tmp_path / "run", groups=16, edits=2, plan=plan(overlap=1, overlap_raters=4))
    annotate.export(context)
    people = roster(context)
    tokens = [people.add(str(number))[1] for number in range(8)]
    with serving(context) as address:
        clients = [Client(address, token) for token in tokens]
        lead = Client(address, people.add("Lead", "lead")[1])
        working = list(clients)
        while working:
            for client in list(working):
                groups = client.get("/api/work")["groups"]
                if groups:
                    client.submit(groups[0])
                else:
                    working.remove(client)
        progress = lead.get("/api/lead/summary")["progress"]
        assert (progress["filled"], progress["connected"], progress["sets"]) == (64, True, "")
    with sqlite3.connect(database(context)) as connection:
        of_group = connection.execute("SELECT count(*) FROM submissions GROUP BY group_id").fetchall()
    assert of_group == [(4,)] * 16


def test_people_without_a_shared_group_are_named_and_calibration_connects_them(tmp_path: Path) -> None:
    context = page_run(tmp_path / "run", groups=4, edits=2, plan=plan(overlap=0))
    annotate.export(context)
    people = roster(context)
    tokens = [people.add(name)[1] for name in ("Ada", "Ben")]
    with serving(context) as address:
        ada, ben = (Client(address, token) for token in tokens)
        lead = Client(address, people.add("Lead", "lead")[1])
        for client in (ada, ben):
            client.submit(client.get("/api/work")["groups"][0])
        sets = lead.get("/api/lead/summary")["progress"]["sets"]
        assert "annotator-01 | annotator-02. If they stay apart, `pipeline annotate export annotate.plan.calibration=3`" in sets
        settings = context.flow.annotate.model_copy(update={"plan": plan(overlap=0, calibration=3)})
        annotate.export(replace(context, flow=context.flow.model_copy(update={"annotate": settings})))
        for client in (ada, ben):
            finish(client)
        assert lead.get("/api/lead/summary")["progress"]["connected"]


def test_whoever_has_a_group_open_takes_no_slot_of_its_reannotation(tmp_path: Path) -> None:
    context = page_run(tmp_path / "run", groups=1, edits=2, plan=plan(overlap=1, overlap_raters=2))
    annotate.export(context)
    people = [roster(context).add(name)[1] for name in ("Ada", "Ben", "Cyd")]
    with serving(context) as address:
        ada, ben, cyd = (Client(address, token) for token in people)
        lead = Client(address, roster(context).add("Lead", "lead")[1])
        (group,) = ada.get("/api/work")["groups"]
        ada.submit(group)
        annotate.ingest(context, [database(context)])
        assert ben.get("/api/work")["groups"][0]["group_id"] == group["group_id"]
        annotate.export(context, groups=listed(tmp_path / "list.csv", [group["group_id"]]))
        assert [cyd.get("/api/work")["groups"][0]["group_id"]] == [group["group_id"]], (
            "the further person need not wait for who has it open"
        )
        ben.submit(ben.get("/api/work")["groups"][0])

        def phase() -> tuple[int, int, int]:
            (of,) = (of for of in lead.get("/api/lead/summary")["phases"] if of["round"] == "reannotation")
            return of["groups"], of["wanted"], of["done"]

        assert phase() == (1, 1, 0)
        annotate.export(context)  # the plan is loaded again
        assert finish(cyd) == [group["group_id"]] and phase() == (1, 1, 1)
    with sqlite3.connect(database(context)) as connection:
        rounds = connection.execute("SELECT annotator, round FROM submissions ORDER BY 1").fetchall()
    assert [round for _, round in rounds] == ["production", "production", "reannotation"]


def test_a_list_asks_for_one_further_person_whoever_rates_in_the_meantime(tmp_path: Path) -> None:
    """Groups of which the overlap wants three people: with one rating, with one that came in after the ingest, with one that two have open
    while the lead hands it over."""
    context = page_run(tmp_path / "run", groups=3, edits=2, plan=plan(overlap=1, overlap_raters=3))
    annotate.export(context)
    people = [roster(context).add(name)[1] for name in ("Ada", "Ben", "Cyd", "Dan", "Eve", "Fay")]
    with serving(context) as address:
        ada, ben, cyd, dan, eve, fay = (Client(address, token) for token in people)
        lead = Client(address, roster(context).add("Lead", "lead")[1])
        one, two, three = finish(ada)
        annotate.ingest(context, [database(context)])
        for client in (ben, cyd):  # they open the first two, and skip the first
            client.ask("POST", "/api/skip", {"group_id": client.get("/api/work")["groups"][0]["group_id"], "seconds": 1.0})
        assert {group["group_id"] for client in (ben, cyd) for group in client.get("/api/work")["groups"]} == {two, three}
        ben.submit(next(group for group in ben.get("/api/work")["groups"] if group["group_id"] == two))
        annotate.export(context, groups=listed(tmp_path / "list.csv", [one, two, three]))
        decision = {"subject": three, "action": "hand-over", "to": dan.who}
        assert lead.ask("POST", "/api/lead/decision", decision) == (200, {"done": "hand-over"})
        assert finish(ben) == [three] == [group["group_id"] for group in cyd.get("/api/work")["groups"] if group["group_id"] == three]
        cyd.ask("POST", "/api/skip", {"group_id": three, "seconds": 1.0})
        assert sorted(finish(dan)) == sorted([one, two, three]) and finish(eve) == finish(fay) == []
    with sqlite3.connect(database(context)) as connection:
        rounds = connection.execute("SELECT group_id, round, count(*) FROM submissions GROUP BY 1, 2").fetchall()
    assert sorted(rounds) == sorted(
        [(group, "reannotation", 1) for group in (one, two, three)]
        + [(one, "production", 1), (two, "production", 2), (three, "production", 2)]
    )


def test_the_places_of_a_round_do_not_stay_in_the_next(tmp_path: Path) -> None:
    context = page_run(tmp_path / "run", groups=1, edits=2, plan=plan(pilot_raters=3, ranking_raters=1))
    annotate.export(context, round="pilot")
    people = [roster(context).add(name)[1] for name in ("Ada", "Ben", "Cyd")]
    with serving(context) as address:
        ada, ben, cyd = (Client(address, token) for token in people)
        group = finish(ada)
        annotate.export(context, groups=listed(tmp_path / "list.csv", group), round="ranking")
        assert finish(ben, 1) == group and finish(cyd, 1) == [], "one person ranks it"
