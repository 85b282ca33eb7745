"""Work that is exported a second time: groups that were removed or changed their role, and groups that are re-annotated until they are
settled.
"""

from __future__ import annotations

import csv
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from page_run import Client, exported, gold_file, page_run, plan, roster, serving

from stages.annotate import step as annotate
from stages.annotate.config import PlanConfig, QualityConfig
from stages.annotate.formats import page_database
from stages.annotate.packet import plan as plans
from stages.annotate.quality import step as annotation_qc
from stages.context import Context
from stages.engine.ids import content_id


def configured(context: Context, **settings: Any) -> Context:
    """The run with other settings of annotate."""
    flow = context.flow.model_copy(update={"annotate": context.flow.annotate.model_copy(update=settings)})
    return Context(context.run, flow, context.cluster)


def database(context: Context) -> Path:
    return context.run.path / "annotate" / "page" / "submissions.sqlite"


def rated_by(address: str, token: str, score: Any = None) -> list[str]:
    """Rate all groups that the page assigns to a person; no group is assigned twice."""
    client, seen = Client(address, token), []
    while groups := client.get("/api/work")["groups"]:
        assert groups[0]["group_id"] not in seen
        seen.append(groups[0]["group_id"])
        client.submit(groups[0], score)
    return seen


def listed(context: Context, name: str = "reannotate.csv") -> list[Mapping[str, str]]:
    return list(csv.DictReader((context.run.path / "annotation-qc" / name).read_text().splitlines()))


def test_groups_of_a_replaced_packet_are_not_assigned(tmp_path: Path) -> None:
    context = exported(page_run(tmp_path / "run", groups=4, plan=plan(overlap=0)))
    token = roster(context).add("Ada")[1]
    with serving(context) as address:
        opened = [group["group_id"] for group in Client(address, token).get("/api/work")["groups"]]
    left = [group for group in plans.read(context.run.path / "annotate" / "plan.json").wanted if group not in opened]
    (tmp_path / "list.csv").write_text("\n".join(left))
    with serving(context), pytest.raises(ValueError, match=r"`pipeline annotate serve` uses the packet in .*; stop it first$"):
        annotate.export(context, groups=tmp_path / "list.csv", replace=True)
    annotate.export(context, groups=tmp_path / "list.csv", replace=True)
    with serving(context) as address:
        assert rated_by(address, token) == left


def test_a_group_that_changes_its_role_is_rated_once(tmp_path: Path) -> None:
    """Production that becomes calibration, hidden gold that becomes training, an exam that becomes training."""
    context = page_run(tmp_path / "run", groups=14)
    path, gold = gold_file(tmp_path / "gold.csv", context, [content_id("source", number) for number in range(10)])
    first = PlanConfig(gold=str(path), training_groups=0, exam_groups=2, hidden_gold=0.95, calibration=0, overlap=0)
    context = exported(configured(context, plan=first))
    token = roster(context).add("Ada")[1]
    seen: list[str] = []
    for settings in (first, first.model_copy(update={"training_groups": 3, "calibration": 2})):
        exported(configured(context, plan=settings))
        with serving(context) as address:
            client = Client(address, token)
            while groups := client.get("/api/work")["groups"]:
                group = groups[0]["group_id"]
                assert group not in seen, f"{group} was handed out twice"
                seen.append(group)
                client.submit(groups[0], lambda candidate, dimension, group=group: gold.get((group, candidate, dimension), 2))
                if len(seen) == 8 and settings is first:
                    break
            assert settings is first or client.get("/api/work")["stage"] == "rating"
    drawn = plans.read(context.run.path / "annotate" / "plan.json")
    assert set(seen) >= {*drawn.training, *drawn.exams[0], *drawn.calibration, *drawn.wanted}


def test_what_quality_control_sends_back_is_rated_by_somebody_else_and_settled(tmp_path: Path) -> None:
    context = exported(page_run(tmp_path / "run", groups=3, plan=plan(overlap=1)))
    people = [roster(context).add(name)[1] for name in ("One", "Two", "Three", "Four")]
    disputed = next(iter(plans.read(context.run.path / "annotate" / "plan.json").wanted))

    with serving(context) as address:
        for token, level in zip(people[:2], (1, 2), strict=True):
            client = Client(address, token)
            while groups := client.get("/api/work")["groups"]:
                client.submit(groups[0], level if groups[0]["group_id"] == disputed else 3)
    annotate.ingest(context, [database(context)])
    annotation_qc.run(context)
    assert [(row["group_id"], row["reason"], row["raters"]) for row in listed(context)] == [
        (disputed, "raters-differ", "annotator-01 annotator-02")
    ]
    annotate.export(context, groups=context.run.path / "annotation-qc" / "reannotate.csv")
    for _ in range(2):  # serving again asks nobody again
        with serving(context) as address:
            assert rated_by(address, people[0]) == rated_by(address, people[1]) == []
            third = Client(address, people[2])
            (group,) = third.get("/api/work")["groups"]
            assert (group["group_id"], group["mode"]) == (disputed, "rating")
            assert Client(address, people[3]).get("/api/work")["groups"] == [], "one further person, not two"
    with serving(context) as address:
        assert rated_by(address, people[2], 2) == [disputed]
    annotate.export(context, groups=context.run.path / "annotation-qc" / "reannotate.csv")
    with serving(context) as address:
        assert [rated_by(address, token) for token in people] == [[], [], [], []], "the same list before the next ingest asks nobody"
    annotate.ingest(context, [database(context)])
    rounds = {(r["annotator"], r["round"]) for r in context.run.step("annotate").read("ratings").to_pylist() if r["source_id"] == disputed}
    assert rounds == {("annotator-01", "production"), ("annotator-02", "production"), ("annotator-03", "reannotation")}
    annotation_qc.run(context)
    assert listed(context) == [] == listed(context, "adjudicate.csv"), "three raters, no cell two levels apart: settled"
    exported(context)
    with serving(context) as address:
        assert [rated_by(address, token) for token in people] == [[], [], [], []]

    # somebody leaves, and the lead decides not to use what they gave
    roster(context).revoke("Two")
    with sqlite3.connect(database(context)) as connection:
        name, _, *rest = connection.execute("SELECT * FROM submissions LIMIT 1").fetchone()
        connection.execute(f"INSERT INTO submissions VALUES ('x', 'annotator-99', {', '.join('?' for _ in rest)})", rest)
        connection.execute(
            "INSERT INTO scores SELECT 'x', candidate_id, dimension, score, position FROM scores WHERE submission_id = ?", (name,)
        )
        page_database.seal(connection, "x")
    revoked, unknown = annotate.ingest(context, [database(context)]).warnings
    assert "submissions.sqlite: 42 ratings are by annotator-02 (whose link is revoked); they count like all others" in revoked
    assert "submissions.sqlite: 14 ratings are by annotator-99 (not on the roster of this run); they count" in unknown
    without = configured(context, quality=QualityConfig(exclude=("annotator-02", "annotator-99")))
    decided = annotation_qc.run(without)
    assert (sorted(decided.results["removed"]), decided.counts["excluded"]) == (["annotator-02", "annotator-99"], 56)
    assert [row["group_id"] for row in listed(context)] == [disputed], "of its two accepted raters one gave 1 and the other 2"
    annotate.export(context, groups=context.run.path / "annotation-qc" / "reannotate.csv")
    with serving(context) as address:
        assert [rated_by(address, token) for token in (people[0], people[2], people[3])] == [[], [], [disputed]]
    with pytest.raises(ValueError, match=r"annotate\.quality\.exclude names 'nobody', who rated nothing"):
        annotation_qc.run(configured(context, quality=QualityConfig(exclude=("nobody",))))
