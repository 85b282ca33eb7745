"""Quality control from the ledger to the accepted ratings, by command: what it writes, what it exits with, what preferences then reads."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from command import pipeline, refusal
from rated_run import make_run, rating_task_of, ratings_of, write_csv

from pipeline import cli, config
from pipeline.report import quality_page
from pipeline.report.page import build
from stages.annotate import step as annotate
from stages.annotate.config import QualityConfig
from stages.annotate.quality import step as annotation_qc
from stages.annotate.ratings.accepted import accepted_ratings
from stages.context import Context
from stages.engine.ids import uniform
from stages.preferences import step as preferences


def qc(run: Path, *overrides: str) -> Result:
    result = CliRunner().invoke(cli.main, ["annotate", "qc", "--run", str(run), *overrides])
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    return result


def rated(path: Path, groups: int = 20) -> Context:
    """Every group rated by two of three people who nearly agree, and by a clicker; configuration frozen as a command would."""
    context = make_run(path, groups=groups, simulate=None)
    work = rating_task_of(context)

    def score(row: dict[str, Any]) -> int:
        level = 1 + int(4 * uniform("level", row["candidate_id"], row["dimension"]))
        slip = uniform("slip", row["candidate_id"], row["dimension"], row["annotator_id"])
        return min(4, level + 1) if slip < 0.15 else level

    people = ["ann", "bob", "cat"]
    rows = []
    for place, group in enumerate(sorted(work.sampled)):
        for name in (people[place % 3], people[(place + 1) % 3]):
            rows += [row | {"score": score(row)} for row in ratings_of(work, name, [group])]
        rows += ratings_of(work, "clicker", [group])
    lone = sorted(work.sampled)[0]
    rows = [row for row in rows if row["group_id"] != lone or row["annotator_id"] == "clicker"]
    annotate.ingest(context, [write_csv(context.run.path / "ratings.csv", rows)])
    (path / "config.yaml").write_text(config.dump(context.flow))
    return context


EASY = "annotate.quality.least_groups=10"


def test_a_clicker_is_removed_and_the_ledger_stays(tmp_path: Path) -> None:
    context = rated(tmp_path / "run")
    ledger = (tmp_path / "run/annotate/index.json").read_bytes()
    result = qc(tmp_path / "run", EASY)
    assert result.exit_code == 0, result.output
    assert "the targets are met" in result.output and re.search(r"clicker +removed", result.output)
    assert (tmp_path / "run/annotate/index.json").read_bytes() == ledger
    folder = context.run.step("annotation-qc")
    index = folder.require()
    assert index.counts["in"] == index.counts["out"] + index.counts["excluded"] and index.results["removed"] == ["clicker"]
    assert index.counts["excluded"] == 20 * 4 * 2 == folder.read("exclusions").num_rows
    assert set(folder.read("exclusions")["reason"].to_pylist()) == {"annotator-removed"}
    assert set(folder.read("ratings")["annotator"].to_pylist()) == {"ann", "bob", "cat"}
    before = json.loads((folder.path / "quality.json").read_text())
    with (folder.path / "annotators.csv").open() as file:
        rows = {(row["annotator"], row["dimension"]): row for row in csv.DictReader(file)}
    assert len(rows) == 8 and rows["clicker", "visual_quality"]["status"] == "removed"
    assert float(rows["ann", "visual_quality"]["kappa_low"]) > 0.7 and before["met"]
    again = list(csv.DictReader((folder.path / "reannotate.csv").open()))
    assert [(row["reason"], row["raters"]) for row in again] == [("no-accepted-rater", "clicker")]
    assert qc(tmp_path / "run", EASY).output == result.output, "asked again, the same"
    page = (folder.path / "quality.html").read_text()
    shown = re.search(r"instruction following: kappa with the others (\S+) \[", page)
    (kappa,) = {row["kappa"] for key, row in rows.items() if key == ("clicker", "instruction_following")}
    assert shown and float(shown[1]) == pytest.approx(float(kappa), abs=0.0006), "with its sign"
    assert "clicker" in page and "its upper limit is below 0.4" in page
    assert "http" not in re.sub(r"http://www\.w3\.org/\d+/svg|http-equiv", "", page), "the page asks nothing of the network"


def test_preferences_reads_what_was_accepted(tmp_path: Path) -> None:
    context = rated(tmp_path / "run")
    everything = preferences.run(context)
    assert set(everything.inputs) == {"generate", "annotate"}
    assert qc(tmp_path / "run", EASY).exit_code == 0
    with pytest.raises(ValueError, match=r"annotation-qc.*repeat with --force"):
        preferences.run(context)
    accepted = preferences.run(Context(context.run, context.flow, context.cluster, force=True))
    assert accepted.inputs["annotation-qc"] == context.run.step("annotation-qc").require().fingerprint
    assert accepted.counts["out"] == everything.counts["out"] - 1, "the group that only the clicker had rated"
    assert set(context.run.step("preferences").read("pairs")["raters"].to_pylist()) == {2}
    assert qc(tmp_path / "run", EASY, "annotate.quality.remove.kappa=-1").exit_code == 2, "the clicker counts now"
    assert re.search(r"preferences +stale: annotation-qc changed", pipeline("status", "--run", tmp_path / "run").output)
    assert "Quality control accepted" in build(context.run).read_text()
    more = ratings_of(rating_task_of(context), "dan")
    annotate.ingest(context, [write_csv(tmp_path / "more.csv", more)])
    assert "run `pipeline annotate qc` again, or delete that folder" in refusal("run", "preferences", "--run", tmp_path / "run")
    assert qc(tmp_path / "run", EASY).exit_code in (0, 2)
    preferences.run(Context(context.run, context.flow, context.cluster, force=True))


def test_exit_status_says_whether_the_targets_are_met(tmp_path: Path) -> None:
    rated(tmp_path / "run")
    target = "{round: production, dimension: visual_quality, statistic: %s, at_least: %s, bound: %s}"
    for statistic, least, bound, code in (
        ("alpha_ordinal", 0.999, "low", 2),
        ("within_one_level", 0.9, "low", 0),
        ("icc_1_1", 0.9, "value", 0),
        ("icc_2_1", 0.0, "low", 2),
    ):
        found = qc(tmp_path / "run", EASY, f"annotate.quality.targets=[{target % (statistic, least, bound)}]")
        assert found.exit_code == code, found.output
    assert "no two items were rated by all raters" in found.output
    nothing = qc(tmp_path / "run", EASY, "annotate.quality.targets=[]")
    assert nothing.exit_code == 2 and "the targets are not met" in nothing.output, "what was not judged was not met"


def test_mistakes_are_one_sentence(tmp_path: Path) -> None:
    context = make_run(tmp_path / "empty", simulate=None)
    (tmp_path / "empty/config.yaml").write_text(config.dump(context.flow))
    assert "step annotate is not done" in refusal("annotate", "qc", "--run", tmp_path / "empty")
    rated(tmp_path / "run")
    refused = refusal("annotate", "qc", "--run", tmp_path / "run", "annotate.quality.remove.outliers=two-sd")
    assert "(n - 1) / sqrt(n) = 1.15 standard deviations" in refused and "can never remove anybody" in refused
    assert not (tmp_path / "run/annotation-qc/index.json").exists()
    assert "names 'eve'" in refusal("annotate", "qc", "--run", tmp_path / "run", "annotate.quality.experts=[eve]")
    assert "unknown key" in refusal("annotate", "qc", "--run", tmp_path / "run", "annotate.quality.kapa=1")


def test_the_list_of_groups_to_rate_again_is_exported(tmp_path: Path) -> None:
    context = rated(tmp_path / "run")
    qc(tmp_path / "run", EASY)
    listed = tmp_path / "run/annotation-qc/reannotate.csv"
    pipeline("annotate", "export", "--run", tmp_path / "run", "--groups", listed)
    exported = [json.loads(line) for line in (tmp_path / "run/annotate/export/groups.jsonl").read_text().splitlines()]
    with listed.open() as file:
        assert [group["group_id"] for group in exported] == [row["group_id"] for row in csv.DictReader(file)]
    (tmp_path / "excel.csv").write_text(listed.read_text(), encoding="utf-8-sig")
    pipeline("annotate", "export", "--run", tmp_path / "run", "--groups", tmp_path / "excel.csv")
    (tmp_path / "other.csv").write_text("group_id\nnobody\n")
    assert "there is no group 'nobody'" in refusal("annotate", "export", "--run", tmp_path / "run", "--groups", tmp_path / "other.csv")
    assert context.run.step("annotate").index() is not None


def test_exam_ratings_are_no_training_data_and_those_of_calibration_are(tmp_path: Path) -> None:
    context = make_run(tmp_path / "run", groups=4, simulate=None)
    work = rating_task_of(context)
    examined, calibrating, *others = work.sampled
    rows = ratings_of(work, "ann", others, round="production") + ratings_of(work, "bob", [examined], round="exam")
    rows += [row for name in ("ann", "bob") for row in ratings_of(work, name, [calibrating], round="calibration", score=3)]
    annotate.ingest(context, [write_csv(tmp_path / "a.csv", rows)])
    before, _ = accepted_ratings(context.run)
    index = annotation_qc.run(context)
    folder = context.run.step("annotation-qc")
    assert index.counts["excluded"] == 8 and before.equals(folder.read("ratings"))
    assert set(folder.read("exclusions")["reason"].to_pylist()) == {"exam"}
    accepted = {(row["source_id"], row["annotator"]) for row in folder.read("ratings").to_pylist()}
    assert accepted == {(calibrating, "ann"), (calibrating, "bob"), *((group, "ann") for group in others)}
    rounds = json.loads((folder.path / "quality.json").read_text())["rounds"]
    assert rounds["calibration"]["visual_quality"]["exact"]["value"] == 1.0 and "exam" not in rounds


@pytest.mark.parametrize("round", ["exam", "adjudication", "ranking"])
def test_a_ledger_without_anything_to_judge(tmp_path: Path, round: str) -> None:
    context = make_run(tmp_path / "run", groups=2, simulate=None)
    rows = [row | {"round": round} for name in ("ann", "bob") for row in ratings_of(rating_task_of(context), name)]
    annotate.ingest(context, [write_csv(tmp_path / "a.csv", rows)])
    index = annotation_qc.run(context)
    assert index.results["met"] is False and index.counts["in"] == index.counts["out"] + index.counts["excluded"] == 32
    page = quality_page.build(context.run).read_text()
    assert "The targets are not met" in page and "Round adjudication" not in page, "an adjudicator knows the others' scores"


IMAGENHUB_AC2 = {"semantic_consistency": 0.821, "perceptual_quality": 0.679}


def test_raters_of_imagenhub(tmp_path: Path, shared_data: Path) -> None:
    quality = QualityConfig.model_validate(
        {
            "targets": [
                {"round": "production", "dimension": "semantic_consistency", "at_least": 0.60},
                {"round": "production", "dimension": "perceptual_quality", "at_least": 0.60},
            ]
        }
    )
    context = make_run(tmp_path / "run", simulate=None, quality=quality)
    annotate.ingest(context, sorted((shared_data / "imagenhub").glob("ImagenHub_Mask*/*.tsv")), "imagenhub")
    index = annotation_qc.run(context)
    figures = json.loads((tmp_path / "run/annotation-qc/quality.json").read_text())
    assert [target["met"] for target in figures["targets"]] == [True, False] and index.results["met"] is False
    for dimension, published in IMAGENHUB_AC2.items():
        found = figures["rounds"]["production"][dimension]
        assert found["ac2_quadratic"]["value"] == pytest.approx(published, abs=0.002)
        assert found["icc_3_1"]["value"] >= found["icc_2_1"]["value"] > 0.5
        assert found["icc_2_k"]["value"] > found["icc_2_1"]["value"]
    assert len(figures["annotators"]) == 6 and index.results["removed"] == []
