"""The lead's page and `annotate qc` show the same figures: of all ratings and of the accepted ones, with the targets."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from page_run import Client, exported, page_run, plan, roster, serving

from stages.annotate import step as annotate
from stages.annotate.config import QualityConfig, Target
from stages.annotate.quality import step as annotation_qc
from stages.context import Context
from stages.engine.ids import uniform

TARGET = Target.model_validate({"round": "production", "dimension": "visual_quality", "at_least": 0.7})


def test_page_and_quality_control_judge_alike(tmp_path: Path) -> None:
    rules = QualityConfig(least_groups=4, targets=(TARGET,))
    context = exported(page_run(tmp_path / "run", groups=10, edits=4, plan=plan(overlap=1, overlap_raters=3), quality=rules))
    people = {name: roster(context).add(name)[1] for name in ("Good", "Also good", "Clicker")}
    with serving(context) as address:
        lead = Client(address, roster(context).add("Lead", "lead")[1])
        for name, token in people.items():
            client = Client(address, token)

            def score(candidate: str, dimension: str, name: str = name) -> int:
                return 1 + int(4 * uniform("Clicker" if name == "Clicker" else "level", candidate, dimension))

            while groups := client.get("/api/work")["groups"]:
                client.submit(groups[0], score)
        shown = lead.get("/api/lead/summary")
        assert lead.get("/api/lead/summary")["quality"] == shown["quality"]
        annotate.ingest(context, [context.run.path / "annotate" / "page" / "submissions.sqlite"])
        annotation_qc.run(context)
        found = json.loads((context.run.path / "annotation-qc" / "quality.json").read_text())
        assert shown["quality"]["targets"] == found["targets"]
        assert (shown["quality"]["accepted"], shown["quality"]["all"]) == (found["rounds"], found["rounds_of_all_ratings"])
        (target,) = found["targets"]
        assert target["met"] and target["estimate"]["value"] == 1.0 and target["estimate_of_all"]["high"] < 0.7
        assert [(p["annotator"], p["status"]) for p in shown["people"]] == [
            ("annotator-01", "good"), ("annotator-02", "good"), ("annotator-03", "removed"),
        ]  # fmt: skip
        assert (shown["queued"], found["again"]["groups"]) == ([], {}), "the two good people agree"
        assert shown["people"][0]["remarks"] == [] and "its upper limit is below" in shown["people"][2]["remarks"][0]
    refused = context.flow.annotate.model_copy(update={"quality": QualityConfig(exclude=("annotator-09",))})
    with serving(Context(context.run, context.flow.model_copy(update={"annotate": refused}), context.cluster)) as address:
        lead = Client(address, roster(context).add("Second lead", "lead")[1])
        assert "names 'annotator-09', who rated nothing" in lead.get("/api/lead/summary")["quality"]["problem"]


def test_page_and_quality_control_have_the_same_queue(tmp_path: Path) -> None:
    rules = QualityConfig(exclude=("annotator-03",))
    context = exported(page_run(tmp_path / "run", groups=9, edits=4, plan=plan(overlap=1, overlap_raters=2), quality=rules))
    people = [roster(context).add(name)[1] for name in ("Ada", "Ben", "Excluded")]
    with serving(context) as address:
        clients = [Client(address, token) for token in people]
        lead = Client(address, roster(context).add("Lead", "lead")[1])
        for client in clients * 9:  # by turns, each with scores of their own
            for group in client.get("/api/work")["groups"][:1]:
                client.submit(group)
        shown = lead.get("/api/lead/summary")["queued"]
    annotate.ingest(context, [context.run.path / "annotate" / "page" / "submissions.sqlite"])
    annotation_qc.run(context)
    listed = list(csv.DictReader((context.run.path / "annotation-qc" / "reannotate.csv").read_text().splitlines()))
    assert 0 < len(listed) < 9, "those that the excluded person shares have one rater"
    assert [(of["group_id"], of["message"], " ".join(of["raters"])) for of in shown] == [
        (row["group_id"], row["message"], row["raters"]) for row in listed
    ]
