"""A lab's own protocol on the rating page: its rubrics, dimensions and scale, the phases, skipped groups, hours, the preview."""

from __future__ import annotations

import csv
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from page_run import Client, exported, page_run, plan, roster, running, serving
from rated_run import rating_task_of, ratings_of, write_csv

from stages.annotate import step as annotate
from stages.annotate.config import AnnotateConfig, QualityConfig
from stages.annotate.page import server
from stages.annotate.quality import step as annotation_qc
from stages.annotate.ratings import ledger
from stages.annotate.ratings.delivery import SCORES_GIVEN
from stages.context import Context

EDITHF = ("visual_quality", "instruction_alignment", "attribute_preservation")

ENGLISH = "# How to rate\n\n" + "\n".join(
    f"## {name.replace('_', ' ').capitalize()}\n\n- **1 Bad**: bad.\n- **5 Good**: good.\n" for name in EDITHF
)
GERMAN = "# Anleitung\n\n## Bildqualität {#visual_quality}\n\n- **1 Schlecht**: Fehler überall.\n\n" + "\n".join(
    f"## Zweite {{#{name}}}\n" for name in EDITHF[1:]
)


def rows(context: Context, query: str, *values: Any) -> list[Any]:
    with sqlite3.connect(f"file:{context.run.path / 'annotate' / 'page' / 'submissions.sqlite'}?mode=ro", uri=True) as connection:
        return connection.execute(query, values).fetchall()


def with_settings(context: Context, **settings: Any) -> Context:
    config = AnnotateConfig.model_validate(context.flow.annotate.model_dump() | settings)
    return replace(context, flow=context.flow.model_copy(update={"annotate": config}))


def write_rubric(folder: Path, **texts: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name.replace('__', '.')}.md").write_text(text, encoding="utf-8")
    return folder


def test_own_rubric_three_dimensions_and_a_slider(tmp_path: Path) -> None:
    """As EditHF: three dimensions, scores from 1 to 5 in steps of 0.1; a rubric in two languages, and a second version of it."""
    folder = write_rubric(tmp_path / "rubrics", ours=ENGLISH, ours__de=GERMAN)
    context = page_run(
        tmp_path / "run", groups=3, edits=2, plan=plan(overlap=0), dimensions=EDITHF, scale_max=5, scale_step=0.1,
        rubrics=str(folder), rubric_version="ours",
    )  # fmt: skip
    exported(context)
    with serving(context) as address:
        ada = Client(address, roster(context).add("Ada")[1])
        session = ada.get("/api/session")
        assert session["dimensions"] == list(EDITHF) and len(session["levels"]) == 41
        assert {language: of["titles"]["visual_quality"] for language, of in session["rubrics"].items()} == {
            "": "Visual quality",
            "de": "Bildqualität",
        }
        assert session["rubrics"]["de"]["words"]["1"] == "Schlecht" and session["rubrics"][""]["words"]["5"] == "Good"
        first, second = ada.get("/api/work")["groups"]
        status, value = ada.ask("POST", "/api/submit", ada.submission(first, 3.45, rubric_version="ours"))
        assert (status, value["message"]) == (422, "score 3.45 is not on the scale 1 to 5")
        ada.submit(first, 3.4, rubric_version="ours")

        # the rubric of a version stays as raters saw it; a new version is added, and both are accepted
        write_rubric(folder, ours=ENGLISH.replace("bad.", "worse."))
        with pytest.raises(ValueError, match=r"rubric ours\.md has changed since it was exported; save the changed text as a new version"):
            annotate.export(context)
        write_rubric(folder, ours2=ENGLISH.replace("bad.", "worse."))
        later = with_settings(context, rubric_version="ours2")
        assert annotate.is_exported(context) and not annotate.is_exported(later)
        annotate.export(later)
        assert annotate.is_exported(later)
        assert ada.get("/api/work")["rubric_version"] == "ours2"
        ada.submit(second, 4, rubric_version="ours")  # was shown before the new version
        ada.submit(ada.get("/api/work")["groups"][0], 2.1, rubric_version="ours2")
        lead = Client(address, roster(context).add("Lead", "lead")[1]).get("/api/lead/summary")
        assert lead["shares"][EDITHF[0]] == {"1": 0, "2": 0.3333, "3": 0.3333, "4": 0.3333, "5": 0}, "41 levels are shown at five"
        assert lead["shares_note"] == "Scores are counted at the nearest of five levels."
        assert "no rubric 'v1'" in ada.ask("POST", "/api/submit", ada.submission(first))[1]["message"]
    result = annotate.ingest(later, [context.run.path / "annotate" / "page" / "submissions.sqlite"])
    assert result.index.counts == {"in": 18, "out": 18, "duplicates": 0, "quarantined": 0} and not result.warnings
    table = ledger.current(later.run.step("annotate"))
    assert sorted(set(zip(table["score"].to_pylist(), table["rubric_version"].to_pylist(), strict=True))) == [
        (2.1, "ours2"),
        (3.4, "ours"),
        (4.0, "ours"),
    ]
    sampled = rating_task_of(later).sampled
    own = {"annotator_id": "eve"} | dict.fromkeys(EDITHF, "2.5")
    wide = [{"group_id": group, "candidate_id": candidate} | own for group, of in sampled.items() for candidate in of]
    assert annotate.ingest(later, [write_csv(tmp_path / "wide.csv", wide)]).index.counts["out"] == 36


def test_a_rubric_that_does_not_fit_is_refused_by_name(tmp_path: Path) -> None:
    context = page_run(tmp_path / "run", groups=1, edits=2)
    sound = (Path(annotate.__file__).parent / "packet" / "rubrics" / "v1.md").read_text()
    cases = {
        "r1": (
            sound.replace("## Visual quality", "## Beauty"),
            r"r1\.md has no heading for the dimension visual_quality; write '## Visual",
        ),
        "r2": (
            sound.replace("- **2 Relatively poor**", "- Relatively poor"),
            r"r2\.md describes the scores 1, 3, 4 of instruction_following",
        ),
        "r3": (None, r"there is no rubric 'r3' to export \(there is r1, r2, v1\); put r3\.md into a folder"),
    }
    for name, (text, message) in cases.items():
        folder = write_rubric(tmp_path / "rubrics", **({name: text} if text else {}))
        with pytest.raises(ValueError, match=message):
            annotate.export(with_settings(context, rubrics=str(folder), rubric_version=name))
    with pytest.raises(ValueError, match=r"annotate\.rubrics: there is no folder .*nowhere"):
        annotate.export(with_settings(context, rubrics=str(tmp_path / "nowhere")))


def test_pilot_production_adjudication_ranking(tmp_path: Path) -> None:
    """One project through its phases, on one running page."""
    quality = QualityConfig.model_validate({"reannotate": {"raters": 2}})
    protocol = plan(overlap=0, pilot_raters=2, ranking_raters=1, experts=("annotator-04", "annotator-05"))
    context = page_run(tmp_path / "run", groups=5, edits=3, plan=protocol, quality=quality)
    work = rating_task_of(context)
    groups = list(work.sampled)
    annotate.export(context, limit=1, round="pilot")
    with serving(context) as address:
        people = [Client(address, roster(context).add(name)[1]) for name in ("Ann", "Bob", "Cyd", "Expert")]
        lead = Client(address, roster(context).add("Lead", "lead")[1])
        second = Client(address, roster(context).add("Second expert")[1])
        ann, bob, cyd, expert = people
        for client, score in ((ann, 1), (bob, 4)):
            assert [group["group_id"] for group in client.get("/api/work")["groups"]] == groups[:1]
            client.submit(client.get("/api/work")["groups"][0], lambda c, d, score=score: score if d == work.dimensions[0] else 3)
        assert cyd.get("/api/work")["groups"] == [], "two people rate a pilot group"

        # production: the pilot group stays what it was
        annotate.export(context, limit=3)
        annotate.ingest(context, [context.run.path / "annotate" / "page" / "submissions.sqlite"])
        assert set(ledger.current(context.run.step("annotate"))["round"].to_pylist()) == {"pilot"}
        assert {group["group_id"] for group in cyd.get("/api/work")["groups"]} == set(groups[1:3])

        # adjudication: the disputed cells alone, with the scores that were given, for the expert
        annotation_qc.run(context)
        listed = context.run.path / "annotation-qc" / "adjudicate.csv"
        assert lead.get("/api/lead/summary")["disputed"] == {groups[0]: 3} == {groups[0]: len(listed.read_text().splitlines()) - 1}
        with pytest.raises(ValueError, match="--round adjudication needs --groups"):
            annotate.export(context, round="adjudication")
        annotate.export(context, groups=listed, round="adjudication")
        assert all(groups[0] not in [g["group_id"] for g in client.get("/api/work")["groups"]] for client in (ann, bob, cyd))
        group = next(g for g in expert.get("/api/work")["groups"] if g["group_id"] == groups[0])
        assert group["mode"] == "adjudication" and group["given"] == {c: {work.dimensions[0]: [1.0, 4.0]} for c in work.sampled[groups[0]]}
        whole = expert.submission(group | {"given": None}, 2)
        assert expert.ask("POST", "/api/submit", whole)[1]["message"].endswith("is not asked for in this group")
        early = next(iter(group["given"]))
        expert.submit(group | {"given": {early: group["given"][early]}}, 2)

        # a second list with another cell of the group: who has adjudicated it is asked for all of its cells, the earlier score is kept
        adjudicated = list(csv.DictReader(listed.read_text().splitlines()))
        more = [row | {"dimension": work.dimensions[1], SCORES_GIVEN: "1 3"} for row in adjudicated[:1]]
        annotate.export(context, groups=write_csv(tmp_path / "more.csv", more), round="adjudication")
        group = next(g for g in expert.get("/api/work")["groups"] if g["group_id"] == groups[0])
        new = more[0]["candidate_id"]
        assert sum(len(cells) for cells in group["given"].values()) == 4 and group["given"][new][work.dimensions[1]] == [1.0, 3.0]
        assert group["said"]["scores"] == {early: {work.dimensions[0]: 2}} and not group["skippable"]
        forgets = expert.submission(group | {"given": {new: {work.dimensions[1]: []}}}, 3)
        assert expert.ask("POST", "/api/submit", forgets)[1]["message"] == "1 of 4 scores are missing", "the earlier score counts no longer"
        expert.submit(group, 2)
        assert groups[0] not in [g["group_id"] for g in expert.get("/api/work")["groups"]]

        # a third list: another adjudicator who comes first is asked for the new cell alone
        more = [row | {"dimension": work.dimensions[1], SCORES_GIVEN: "2 4"} for row in adjudicated[1:2]]
        annotate.export(context, groups=write_csv(tmp_path / "third.csv", more), round="adjudication")
        group = next(g for g in second.get("/api/work")["groups"] if g["group_id"] == groups[0])
        assert group["given"] == {more[0]["candidate_id"]: {work.dimensions[1]: [2.0, 4.0]}}
        second.submit(group, 3)
        assert groups[0] not in [g["group_id"] for client in (expert, second) for g in client.get("/api/work")["groups"]]

        # ranking: ranks from 1 to the number of edits
        (tmp_path / "list.txt").write_text(groups[4] + "\n")
        annotate.export(context, groups=tmp_path / "list.txt", round="ranking")
        group = next(g for g in cyd.get("/api/work")["groups"] + cyd.get("/api/work")["groups"] if g["group_id"] in groups)
        while group["group_id"] != groups[4]:
            cyd.submit(group)
            group = cyd.get("/api/work")["groups"][0]
        assert (group["mode"], group["levels"]) == ("ranking", [1, 2, 3])
        assert cyd.ask("POST", "/api/submit", cyd.submission(group, 4))[1]["message"] == "score 4 is not on the scale 1 to 3"
        place = {candidate["id"]: rank for rank, candidate in enumerate(group["candidates"], 1)}
        cyd.submit(group, lambda candidate, dimension: place[candidate])

        assert lead.get("/api/lead/summary")["disputed"] == {}
        phases = {entry["round"]: entry for entry in lead.get("/api/lead/summary")["phases"]}
        counts = {
            name: (phase["groups"], phase["wanted"], phase["done"]) for name, phase in phases.items() if phase["done"] or phase["groups"]
        }
        assert counts == {"pilot": (1, 2, 2), "production": (2, 2, 2), "adjudication": (1, 1, 2), "ranking": (1, 1, 1)}
    annotate.ingest(context, [context.run.path / "annotate" / "page" / "submissions.sqlite"])
    assert list(csv.DictReader(listed.read_text().splitlines()))
    annotation_qc.run(context)
    assert list(csv.DictReader(listed.read_text().splitlines())) == [], "the expert's scores settle the cells"
    ranked = ledger.current(context.run.step("annotate")).to_pylist()
    ranks = {row["candidate_id"]: row["score"] for row in ranked if row["round"] == "ranking" and row["scale_max"] == 3}
    assert ranks == {candidate: float(rank) for candidate, rank in place.items()}


def test_a_group_counts_in_every_phase_in_which_it_was_rated_and_one_that_nobody_may_rate_is_named(tmp_path: Path) -> None:
    """Two calibration groups become benchmark groups, for experts who have rated one of them, and of whom one is misspelt."""
    context = page_run(tmp_path / "run", groups=3, edits=2, plan=plan(overlap=0, calibration=2, benchmark_raters=1))
    experts = plan(overlap=0, calibration=2, benchmark_raters=1, experts=("annotator-01", "annotator-12"))
    later = with_settings(exported(context), plan=experts.model_dump())
    with serving(later) as address:
        ann = Client(address, roster(context).add("Ann")[1])
        lead = Client(address, roster(context).add("Lead", "lead")[1])
        first, second = (group["group_id"] for group in ann.get("/api/work")["groups"])
        ann.submit(ann.get("/api/work")["groups"][0])

        def shown() -> tuple[dict[str, Any], list[str]]:
            summary = lead.get("/api/lead/summary")
            return {p["round"]: (p["groups"], p["wanted"], p["done"]) for p in summary["phases"]}, summary["waiting"]

        phases, waiting = shown()
        assert phases["calibration"] == (2, None, 1) and waiting == [
            "annotate.plan.experts names annotator-12, who is no annotator on the roster with a valid link: `pipeline annotate roster list`"
        ]
        (tmp_path / "list.csv").write_text(f"{first}\n{second}\n")
        annotate.export(later, groups=tmp_path / "list.csv", round="benchmark")
        ann.get("/api/work")
        phases, waiting = shown()
        assert phases["calibration"] == (1, None, 1) and phases["benchmark"] == (2, 2, 0)
        assert waiting[1:] == [
            f"benchmark: 1 group waits (first {first}): every expert on the roster has rated or skipped it, or is paused, or there is "
            "none; `pipeline annotate roster add` adds a person, whom annotate.plan.experts must name before the page is started again"
        ]
        roster(context).revoke("Ann")
        assert "benchmark: 2 groups wait" in " ".join(shown()[1])
    roster(context).add("Ben")
    with serving(context) as address:
        lead = Client(address, roster(context).renew("Lead")[1])
        assert lead.get("/api/lead/summary")["waiting"] == [], "without experts everybody may rate"
    for name in ("Ann", "lead-01", "annotator-1"):
        with pytest.raises(ValueError, match=f"'{name}' is no pseudonym of an annotator such as annotator-01"):
            plan(experts=(name,))


def test_skip_hand_over_and_hours(tmp_path: Path) -> None:
    context = exported(page_run(tmp_path / "run", groups=3, edits=2, plan=plan(overlap=0, calibration=1)))
    with serving(context) as address:
        ann, bob = (Client(address, roster(context).add(name)[1]) for name in ("Ann", "Bob"))
        lead = Client(address, roster(context).add("Lead", "lead")[1])
        first = ann.get("/api/work")["groups"][0]
        give = {"reason": "too dark", "seconds": 20.0}
        assert not first["skippable"] and ann.ask("POST", "/api/skip", {"group_id": first["group_id"], **give})[0] == 409
        ann.submit(first, seconds=40.0)
        ann.submit(ann.get("/api/previous"), seconds=5.0)
        bob.submit(bob.get("/api/work")["groups"][0], seconds=10.0)
        skipped, other = ann.get("/api/work")["groups"]
        assert bob.ask("POST", "/api/skip", {"group_id": skipped["group_id"], **give})[0] == 403
        body = {"version": 0, "revision": 0, "body": {"scores": {}}}
        assert ann.ask("PUT", f"/api/draft/{skipped['group_id']}", body)[0] == 200
        assert ann.ask("POST", "/api/skip", {"group_id": skipped["group_id"], **give}) == (200, {})
        assert [group["group_id"] for group in ann.get("/api/work")["groups"]] == [other["group_id"]]
        assert [group["group_id"] for group in bob.get("/api/work")["groups"]] == [skipped["group_id"]], "free at once"
        assert bob.ask("POST", "/api/skip", {"group_id": skipped["group_id"], **give, "reason": "\x07"})[0] == 422
        bob.ask("POST", "/api/skip", {"group_id": skipped["group_id"], **give})

        queue = lead.get("/api/lead/summary")["skipped"]
        assert [(entry["annotator"], entry["reason"]) for entry in queue] == [(ann.who, "too dark"), (bob.who, "too dark")]
        over = {"subject": skipped["group_id"], "action": "hand-over", "reason": "you know it"}
        assert lead.ask("POST", "/api/lead/decision", {**over, "to": "nobody"})[0] == 422
        assert lead.ask("POST", "/api/lead/decision", {**over, "to": ann.who}) == (200, {"done": "hand-over"})
        assert skipped["group_id"] in [group["group_id"] for group in ann.get("/api/work")["groups"]]
        assert lead.get("/api/lead/summary")["skipped"] == []
        ann.submit(skipped, seconds=30.0)
        ann.submit(other, seconds=30.0)
        assert lead.ask("POST", "/api/lead/decision", {**over, "to": ann.who})[0] == 409
        # a group whose slots are all taken gets a further person
        assert lead.ask("POST", "/api/lead/decision", {**over, "subject": other["group_id"], "to": bob.who})[0] == 200
        assert [group["group_id"] for group in bob.get("/api/work")["groups"]] == [other["group_id"]]

        hours = {entry["annotator"]: entry for entry in lead.get("/api/lead/summary")["hours"]}
        assert {name: (of["seconds"], of["groups"], of["revisions"], of["skips"]) for name, of in hours.items()} == {
            ann.who: (125.0, 3, 1, 1),
            bob.who: (30.0, 1, 0, 1),
        }
        status, data, _ = lead.raw("GET", "/api/lead/hours.csv")
        assert status == 200 and data.decode().splitlines()[0] == "annotator,day,seconds,groups,revisions,skips"
        assert ann.raw("GET", "/api/lead/hours.csv")[0] == 403
    # time of a revision adds to the group's time
    query = "SELECT DISTINCT revision, seconds FROM ratings WHERE group_id = ? AND annotator = ?"
    assert rows(context, query, first["group_id"], ann.who) == [(2, 45 / 4)]


def test_a_skip_counts_once_and_holds(tmp_path: Path) -> None:
    context = exported(page_run(tmp_path / "run", groups=1, edits=2, plan=plan(overlap=1, overlap_raters=2)))
    with serving(context) as address:
        ann, bob, cyd = (Client(address, roster(context).add(name)[1]) for name in ("Ann", "Bob", "Cyd"))
        lead = Client(address, roster(context).add("Lead", "lead")[1])
        group = ann.get("/api/work")["groups"][0]
        give = {"group_id": group["group_id"], "reason": "", "seconds": 20.0}
        bob.get("/api/work")
        for client in (ann, ann, bob):  # the second request repeats one whose answer was lost
            assert client.ask("POST", "/api/skip", give) == (200, {})
        draft = {"version": 0, "revision": 0, "body": {}}
        assert ann.ask("PUT", f"/api/draft/{group['group_id']}", draft)[0] == 409, "an old window does not take it back"
        over = {"subject": group["group_id"], "action": "hand-over", "to": cyd.who}
        assert lead.ask("POST", "/api/lead/decision", over)[0] == 200
        assert [len(client.get("/api/work")["groups"]) for client in (ann, bob, cyd)] == [0, 0, 1]
        seconds = {entry["annotator"]: entry["seconds"] for entry in lead.get("/api/lead/summary")["hours"]}
        assert seconds == {ann.who: 20.0, bob.who: 20.0}
        assert lead.ask("POST", "/api/lead/decision", over | {"to": bob.who})[0] == 200
        bob.submit(bob.get("/api/work")["groups"][0])
        assert lead.get("/api/lead/summary")["skipped"] == []


def test_a_preview_stores_nothing_beside_a_running_page(tmp_path: Path) -> None:
    context = exported(page_run(tmp_path / "run", groups=2, edits=2, plan=plan(overlap=0)))
    with serving(context):
        before = {path: path.read_bytes() for path in sorted(context.run.path.rglob("*")) if path.is_file()}
        shown = server.preview(context.run, context.flow.annotate)
        with shown as (app, token), server.listening("127.0.0.1", 0) as listener, running(app, listener) as address:
            me = Client(address, token)
            assert me.get("/api/session")["preview"] is True
            me.submit(me.get("/api/work")["groups"][0])
            assert me.get("/api/work")["done"] == 1
        assert {path: path.read_bytes() for path in sorted(context.run.path.rglob("*")) if path.is_file()} == before


def test_ratings_of_another_rubric_are_quarantined_until_it_was_exported(tmp_path: Path) -> None:
    context = page_run(tmp_path / "run", groups=1, edits=2)
    path = write_csv(tmp_path / "a.csv", ratings_of(rating_task_of(context), rubric_version="v0"))
    assert annotate.ingest(context, [path]).index.quarantined == {"rubric-unknown": 4}


def test_hours_of_groups_that_are_open(tmp_path: Path) -> None:
    context = exported(page_run(tmp_path / "run", groups=2, edits=2, plan=plan(overlap=0)))
    with serving(context) as address:
        ann, lead = Client(address, roster(context).add("Ann")[1]), Client(address, roster(context).add("Lead", "lead")[1])
        first, second = ann.get("/api/work")["groups"]
        ann.submit(first, seconds=10.0)

        def hours_with(group: dict[str, Any], revision: int, version: int, seconds: object) -> float:
            body = {"version": version, "revision": revision, "body": {"scores": {}, "seconds": seconds}}
            assert ann.ask("PUT", f"/api/draft/{group['group_id']}", body)[0] == 200
            (of,) = lead.get("/api/lead/summary")["hours"]
            assert (of["groups"], of["revisions"]) == (1, 0)
            return of["seconds"]

        assert hours_with(first, 1, 0, 4) == 14.0
        odd = (5.5, -1, 1e12, "long", None, {"of": 1}, [3])
        assert [hours_with(second, 0, n, seconds) for n, seconds in enumerate(odd)] == [19.5, 14.0, 86414.0, 14.0, 14.0, 14.0, 14.0]
        ann.submit(second, seconds=6.0)
        ann.submit(ann.get("/api/group/" + first["group_id"]), seconds=5.0)
        assert lead.get("/api/lead/summary")["hours"][0]["seconds"] == 21.0, "a submission has the time of its draft"


def test_a_group_that_was_open_for_days_is_ingested(tmp_path: Path) -> None:
    """A submission has at most a day; six revisions have six days of four scores."""
    context = exported(page_run(tmp_path / "run", groups=1, edits=2, plan=plan(overlap=0)))
    with serving(context) as address:
        ann = Client(address, roster(context).add("Ann")[1])
        ann.submit(ann.get("/api/work")["groups"][0], seconds=86_400.0)
        for _ in range(5):
            ann.submit(ann.get("/api/previous"), seconds=86_400.0)
    batch = annotate.ingest(context, [context.run.path / "annotate" / "page" / "submissions.sqlite"]).new[0]
    assert (batch.accepted, batch.quarantined) == (4, {})
