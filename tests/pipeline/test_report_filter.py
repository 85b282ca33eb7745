"""The filter's part of the page: readable and small for 46,000 edits, intervals that cover, differences that show what changed."""

from __future__ import annotations

import base64
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from PIL import Image
from report_page import Page
from scored_run import scored_run
from selecting import completed, rows_of, select

from pipeline.report import scored_edits
from pipeline.report.charts import boxes
from pipeline.report.page import build
from pipeline.report.pictures import Originals
from pipeline.report.published import Published
from pipeline.report.sections import galleries
from pipeline.report.sections.filter_league import clustered_mean
from pipeline.report.sections.galleries import BEST, offset
from pipeline.report.triptychs import difference, triptych
from stages.engine import contracts, images
from stages.engine.rundir import Index, RunDir
from stages.engine.units import publish_unit
from stages.filter.selection import rule as selection
from stages.filter.selection import stored
from stages.filter.selection.config import SelectionConfig

pytestmark = pytest.mark.xdist_group("report of the filter")  # one process makes the 46,000 edits

ROWS = 46_000
TASKS = [f"task-{number}" for number in range(25)]


def photograph(rng: np.random.Generator, side: int = 320) -> np.ndarray:
    """Soft areas with some grain, about as hard to compress as a photograph: uint8 [side, side, 3]."""
    coarse = Image.fromarray(rng.integers(0, 256, (9, 9, 3), np.uint8)).resize((side, side), Image.Resampling.BICUBIC)
    return np.clip(np.asarray(coarse, np.int16) + rng.normal(0, 12, (side, side, 3)), 0, 255).astype(np.uint8)


def jpeg(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished filter step over ``ROWS`` edits of a third as many sources, from two editors, three languages and many tasks."""
    run = RunDir(tmp_path_factory.mktemp("large") / "run")
    rng = np.random.default_rng(0)
    editor = rng.integers(0, 2, ROWS)
    means = (rng.normal(size=(ROWS, 2)) + 0.5 * editor[:, None]).round(5)
    highest = means.sum(axis=1).argmax()
    ids = [f"{number:024x}" for number in rng.permutation(ROWS)]
    entries = [
        [{"dimension": name, "mean": mean, "sigma": 1.0, "likert": round(float(np.clip(2.5 + mean / 2, 1, 4)), 5)} for name, mean in pairs]
        for pairs in (zip(contracts.DIMENSIONS, row, strict=True) for row in means.tolist())
    ]
    scores = pa.table(
        {
            "sample_id": ids,
            "scorer_revision": pa.repeat("r", ROWS),
            "dimensions": pa.array(entries, contracts.SCORES.field("dimensions").type),
            "overall_mean": means.mean(axis=1).round(5),
            "overall_sigma": rng.uniform(0.5, 1.5, ROWS).round(5),
            "change_from_source": rng.uniform(0, 90, ROWS).round(5),
            "task": [TASKS[number] for number in rng.integers(0, 25, ROWS)],
            "language": [("en", "cn", "de")[number] for number in rng.integers(0, 3, ROWS)],
            "flags": pa.array([["flat"] if place == highest else [] for place in range(ROWS)], pa.list_(pa.string())),
        }
    ).cast(contracts.SCORES)
    sources = [f"source-{number}.png" for number in rng.integers(0, ROWS // 3, ROWS)]
    edits = pa.table(
        {
            "sample_id": ids,
            "dataset": pa.repeat("large", ROWS),
            "source": pa.array([{"bytes": None, "path": path} for path in sources], contracts.IMAGE),
            "instruction": pa.repeat("make it red", ROWS),
            "edited": pa.array([{"bytes": None, "path": None}] * ROWS, contracts.IMAGE),
            "language": scores["language"],
            "task": scores["task"],
            "licence": pa.repeat("", ROWS),
            "position": pa.repeat("", ROWS),
            "image_bytes": pa.repeat(1000, ROWS),
            "metadata": [json.dumps({"editor": ("brush", "pen")[number]}) for number in editor],
        }
    ).cast(contracts.EDITS)
    config = SelectionConfig(name="selected", rule="top", count=20_000)
    by_score = select(scores, SelectionConfig(name="all", rule="all")).table["sample_id"].to_pylist()
    uncertain = scores.sort_by([("overall_sigma", "descending"), ("sample_id", "ascending")])["sample_id"].to_pylist()
    wanted = {*by_score[:12], *by_score[-12:], *by_score[20_000 - 12 : 20_000 + 12], *uncertain[:12]}
    shown = []
    for row in edits.filter(pc.is_in(edits["sample_id"], value_set=pa.array(sorted(wanted)))).to_pylist():
        source = photograph(rng)
        edited = source.copy()
        edited[100:200, 80:220] = photograph(rng)[100:200, 80:220]
        shown.append(row | {"source": images.stored(jpeg(source)), "edited": images.stored(jpeg(edited))})
    step = run.step("filter")
    parts = {}
    for name, table in {"scores": completed(scores, edits), "examples": contracts.table("examples", shown)}.items():
        parts |= {key: [part] for key, part in publish_unit(step.path, name, {name: table}).items()}
    files = stored.publish(step, config, selection.select(rows_of(scores), config), parts["scores"], None)
    settings = {"filter": {"input": {"dataset": "large"}, "selections": [config.model_dump(mode="json")]}}
    measured = {"measured": ROWS, "settings": {}, "quantiles": [0.1, 0.5, 0.9]}
    gates = {
        "unchanged": {"action": "drop", "caught": 120, "dropped": 120} | measured,
        "size": {"action": "flag", "caught": 30, "dropped": 0} | measured,
    }
    counts = {"in": ROWS + 127, "out": ROWS, "quarantined": 7, "gated": 120}
    index = Index("filter", "k", settings, {}, parts, files, counts, {"missing-image": 7}, {"gates": gates, "scorer_revision": "abcdef012"})
    step.publish(index)
    unit = {"key": "scores", "parts": {"scores": vars(parts["scores"][0])}, "rows_in": ROWS, "rows_out": ROWS, "seconds": 9200.0}
    (step.path / "units.jsonl").write_text(json.dumps(unit) + "\n" + json.dumps(unit | {"key": "torn"})[:40])
    (run.path / "config.yaml").write_text("name: large\nfilter: {}\n")
    return build(run)


def test_46000_edits_make_a_small_page_with_everything_on_it(large: Path) -> None:
    page = Page(large)
    assert large.stat().st_size < 3e6
    assert f"({large.stat().st_size / 1e6:.2f} MB)" in page.words()
    words = page.words()
    for expected in (
        "gated: unchanged",
        "quarantined: missing-image",
        "Overall score by task",
        "13 others (",
        "Overall score by editor",
        "Predicted ratings: the scores on the raters' scale",
        "predicted rating 3 or more in every dimension",
        "Precision is not known",
        "The highest score, 3.",
        "; flags: flat",
        "Score against change from the source",
        "clustered by source image (",
        "Just above the cut: the lowest-ranked edits that “selected” keeps",
        "Scoring 2 h 33 min",
        "Edits per second 5 and worker",
        "model revision abcdef01",
    ):
        assert expected in words, expected
    assert "gated: size" not in words and "Overall score by dataset" not in words
    assert len(page.all("img")) == 12 * 5 * 3 + 4
    assert len(page.all("tr")) < 120 + 12 * 5 * 2
    assert len(list(large.with_name("report-images").iterdir())) <= 12 * 5 * 2
    rows = re.findall(
        r"<th scope=\"row\">(brush|pen)</th><td[^>]*>([\d,]+)</td><td[^>]*>([^<]+)</td>", re.sub(r"\s*\n\s*", "", page.source)
    )
    assert [name for name, _, _ in rows] == ["pen", "brush"] and rows[0][2].startswith("0.5") and rows[1][2].startswith(("0.0", "−0.0"))


def test_the_clustered_interval_covers_the_mean_where_the_plain_one_does_not() -> None:
    """200 samples of 60 clusters of 10, half of the variance between clusters."""
    rng = np.random.default_rng(0)
    clusters = np.repeat(np.arange(60), 10)
    hits = plain = 0
    for _ in range(200):
        values = rng.normal(size=60)[clusters] + rng.normal(size=600)
        for codes in (clusters, np.arange(600)):
            estimate = clustered_mean(values, codes)
            assert estimate.low is not None and estimate.high is not None
            inside = estimate.low <= 0 <= estimate.high
            hits, plain = (hits + inside, plain) if codes is clusters else (hits, plain + inside)
    assert hits >= 180 and plain < 150
    assert clustered_mean(np.array([1.0, 3.0]), np.array([4, 4])).low is None


def test_the_difference_is_dark_where_something_changed(tmp_path: Path) -> None:
    source = np.full((90, 60, 3), 100, np.uint8)
    edited = source.copy()
    edited[10:40, 10:30, 1] += 60
    shown = difference(images.png(source), images.png(edited), "make it green")
    assert shown.uri is not None and (shown.width, shown.height) == (60, 90)
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(shown.uri.split(",")[1]))))
    assert (pixels[10:40, 10:30] == 255 - 3 * 60).all()
    assert (np.delete(pixels, np.s_[10:40], axis=0) == 255).all()
    smaller = images.png(source[::2, ::2])
    row = {"source": {"bytes": images.png(source)}, "edited": {"bytes": smaller}, "instruction": "shrink"}
    dimensions = [{"dimension": name, "mean": 0.5, "sigma": 0.1, "likert": likert} for name, likert in (("a_b", 3.21), ("c", None))]
    scored = {"overall_mean": -0.25, "overall_sigma": 0.125, "dimensions": dimensions, "flags": ["flat", "near_duplicate"]}
    shown_edit = triptych(row, scored, Originals(tmp_path / "page.html"), {"c": 4})
    assert [picture.width for picture in shown_edit.pictures] == [60, 30, 60]
    assert [bool(picture.full) for picture in shown_edit.pictures] == [True, True, False]
    assert shown_edit.score == "score −0.25 ± 0.12" and shown_edit.flags == "flags: flat, near duplicate"
    assert list(shown_edit.columns) == ["", "a b", "c"]
    assert shown_edit.rows == [("ground truth", "–", "4"), ("predicted rating", "3.21", "–")]
    damaged = difference(images.png(source)[:80], images.png(edited), "make it green")
    assert damaged.uri is None and damaged.lines == ("difference", "an image does not decode")


def test_boxes_mark_their_quantiles() -> None:
    drawn = str(boxes({"a": np.arange(101.0), "b" * 40: np.arange(101.0) + 100}, title="t", x_label="score"))
    assert "a: median 50.00, middle half 25.00 to 75.00, 5 to 95 % 5.00 to 95.00" in drawn
    widths = [float(value) for value in re.findall(r'<rect [^>]*width="([\d.]+)"', drawn)]
    assert widths[0] == pytest.approx(widths[1], abs=0.2) and "b" * 23 + "… (101)" in drawn


def test_the_best_edits_say_which_task_prevails(large: Path) -> None:
    edits = scored_edits.read(Published(RunDir(large.parent)))
    assert edits is not None
    assert offset(edits, BEST) == []  # 25 tasks, and no relation to the score
    best = pc.index_in(pa.array([*_by_score(edits.table)[:9]]), value_set=edits.table["sample_id"].combine_chunks()).to_pylist()
    tasks = np.array(edits.table["task"].to_pylist())
    tasks[best] = "task-7"

    def by(tasks: np.ndarray) -> scored_edits.ScoredEdits:
        return replace(edits, strata={"task": scored_edits.groups(pa.chunked_array([pa.array(tasks)]))})

    (paragraph,) = offset(by(tasks), BEST)
    assert re.match(r"(9|1\d) of the best 12 are of the task task 7, which is 4\u202f% of all", paragraph.text)
    assert offset(by(tasks), "Worst") == []
    tasks[tasks == "task-7"] = ""
    (paragraph,) = offset(by(tasks), BEST)
    assert "of the task (empty), which is" in paragraph.text


@pytest.mark.parametrize("likert", [True, False])
def test_the_galleries_explain_only_what_they_show(likert: bool, tmp_path: Path) -> None:
    """Published checkpoints have no map to the raters' scale."""
    lead = galleries.section(Published(scored_run(tmp_path, likert=likert))).lead
    assert ("On the raters’ scale: predicted rating." in lead) == likert and ("rating" in lead) == likert


def _by_score(scores: pa.Table) -> list[str]:
    return scores.sort_by([("overall_mean", "descending"), ("sample_id", "ascending")])["sample_id"].to_pylist()
