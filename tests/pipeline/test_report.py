"""The report of a small run directory that is written through the real contracts: complete, partial, hostile, and in a real browser."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from PIL import Image
from report_page import Page
from selecting import completed

from pipeline import words
from pipeline.report import scored_edits
from pipeline.report.charts import BINS, MOST_POINTS, Series, histogram, lines
from pipeline.report.page import build
from pipeline.report.pictures import picture
from pipeline.report.published import Published
from pipeline.report.sections import headline
from pipeline.report.svg import round_values
from reward.evaluation.estimate import Estimate
from stages.engine import contracts, images, storage
from stages.engine.ids import content_id, settings_hash
from stages.engine.rundir import Index, RunDir
from stages.engine.units import publish_unit
from stages.world import editors, flaws, items, raters
from stages.world.scenes import render

SIZE = 32
DIMENSIONS = contracts.DIMENSIONS
HOSTILE = "<script>alert('x')</script> & make the \"circle\" blue"
SECTION_IDS = ["result", "evidence", "galleries", "arms", "reward", "filter", "ratings", "samples", "quarantine", "provenance"]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


NEEDS = {
    "evidence": {"filter", "evaluate-reward"},
    "galleries": {"filter"},
    "arms": {"finetune"},
    "reward": {"train-reward"},
    "filter": {"filter"},
    "ratings": {"annotate"},
    "samples": {"generate"},
}
"""Sections and the steps of which one gives them content."""


# ---- a small run


class Written:
    """Publishes steps into a run directory through the functions that the steps use."""

    def __init__(self, path: Path) -> None:
        self.run = RunDir(path)

    def publish(self, step: str, tables: dict[str, pa.Table], files: dict[str, bytes] | None = None, **fields: dict) -> None:
        folder = self.run.step(step)
        parts = publish_unit(folder.path, content_id("unit", step), tables) if tables else {}
        hashes = {name: storage.publish_bytes(folder.path / name, data) for name, data in (files or {}).items()}
        index = Index(
            step=step,
            key=content_id("key", step),
            inputs={},
            artifacts={name: [part] for name, part in parts.items()},
            files=hashes,
            **fields,
        )
        folder.publish(index)
        self.run.note(
            step, {"seconds": 12.5 + len(step), "started": "2026-01-01T00:00:00+00:00", "command": f"pipeline run {step}", **MACHINE}
        )


def make_run(path: Path, *, until: str = "evaluate-editor", hostile: bool = False) -> RunDir:
    """Steps in their order up to ``until``; numbers are made up, images are drawn by the built-in toy data set."""
    run = Written(path)
    for step, write in WRITERS.items():
        write(run, hostile)
        if step == until:
            break
    storage.publish_bytes(path / "config.yaml", b"name: small\ngenerate: {}\nfilter: {}\nfinetune: {}\nevaluate_editor: {}\n")
    return run.run


@cache
def _sources() -> list[tuple[items.Item, dict]]:
    rows = []
    for split, count in (("validation", 10), ("train", 2)):
        for number in range(count):
            item = items.item(0, split, number)
            image = images.png(render(item.scene, SIZE))
            rows.append(
                (
                    item,
                    {
                        "source_id": content_id("source", image, item.instruction),
                        "dataset": "world",
                        "benchmark": "",
                        "licence": "",
                        "split": split,
                        "group": content_id("group", image),
                        "image": images.stored(image),
                        "instruction": item.instruction,
                        "language": "en",
                        "task": item.kind,
                        "metadata": items.to_metadata(item),
                    },
                )
            )
    return rows


@cache
def _candidates() -> list[dict]:
    rows = []
    for item, source in _sources():
        for name in editors.EDITORS:
            for seed in (0, 1):
                made = editors.edit(item, SIZE, name, seed)
                truth = {"instruction_following": made.instruction_following_level, "visual_quality": made.visual_quality_level}
                rows.append(
                    contracts.candidate(
                        candidate_id=content_id("candidate", source["source_id"], name, seed),
                        source_id=source["source_id"],
                        editor=f"world/{name}",
                        editor_revision="1",
                        seed=seed,
                        settings_hash="0",
                        image=images.stored(images.png(made.image)),
                        metadata=json.dumps(truth),
                    )
                )
    for row in rows[3::12]:
        row |= {"status": "failed", "reason": "out-of-memory", "error": "the editor ran out of memory", "image": None}
    return rows


def _drawn() -> list[dict]:
    first = f"world/{next(iter(editors.EDITORS))}"
    return [row for row in _candidates() if row["seed"] == 0 or row["editor"] == first]


def _generate(run: Written, hostile: bool) -> None:
    sources = [dict(row) for _, row in _sources()]
    if hostile:
        sources[0]["instruction"] = HOSTILE
    lost = [{"row_id": "s-9", "position": "sources[9]", "reason": "undecodable", "message": "the image does not decode (truncated)"}]
    tables = {
        "sources": contracts.table("sources", sources),
        "candidates": contracts.table("candidates", _candidates()),
        "drawn": contracts.table("drawn", [{name: row[name] for name in ("source_id", "candidate_id")} for row in _drawn()]),
        "quarantine": contracts.table("quarantine", lost),
    }
    names = [{"name": f"world/{name}", "seeds": [0, 1]} for name in editors.EDITORS]
    run.publish(
        "generate",
        tables,
        settings={"generate": {"sources": {"dataset": "world"}, "editors": names}, "seed": 0},
        counts={"in": 13, "out": 12, "quarantined": 1},
        quarantined={"undecodable": 1},
        results={"candidates_per_source": 12, "annotated_per_source": 7},
    )


def _annotate(run: Written, hostile: bool) -> None:
    rows = []
    for number, candidate in enumerate(_drawn()):
        truth = json.loads(candidate["metadata"])
        for dimension in DIMENSIONS:
            for rater in raters.RATERS[number % 5 : number % 5 + 2]:
                rows.append(
                    {
                        "rating_id": content_id("rating", candidate["candidate_id"], dimension, rater),
                        "source_id": candidate["source_id"],
                        "candidate_id": candidate["candidate_id"],
                        "annotator": rater,
                        "dimension": dimension,
                        "score": float(raters.rate(rater, candidate["candidate_id"], dimension, truth[dimension], 0)),
                        "scale_min": 1.0,
                        "scale_max": 4.0,
                        "round": "production",
                        "submission": "s",
                        "rated_at": "",
                        "seconds": 4.0,
                        "comment": HOSTILE if hostile else "",
                        "rubric_version": "v1",
                    }
                )
    agreement = {
        name: {
            "ratings": 168,
            "items_rated_twice": 84,
            "groups_rated_twice": 12,
            "alpha_ordinal": _estimate(0.74, 0.05, 84),
            "exact": _estimate(0.67, 0.04, 84),
            "quadratic_weighted_kappa": {"value": None, "low": None, "high": None, "n": 84, "note": "no variation"},
            "direction": _estimate(0.93, 0.02, 300),
        }
        for name in DIMENSIONS
    } | {"overall": {"direction": _estimate(0.95, 0.02, 310), "rater_predicts_rater": _estimate(0.83, 0.02, 400)}}
    storage.publish_bytes(run.run.path / "annotate" / "simulated" / "r1.csv", b"candidate_id\n")
    run.publish(
        "annotate",
        {"ratings": contracts.table("ratings", rows)},
        settings={},
        counts={"in": len(rows), "out": len(rows)},
        results={"agreement": agreement},
    )


def _preferences(run: Written, hostile: bool) -> None:
    pair = {
        "pair_id": "p",
        "source_id": "s",
        "split": "train",
        "candidate_a": "a",
        "candidate_b": "b",
        "dimensions": [],
        "overall_a": 3.0,
        "overall_b": 2.0,
        "gap": 1.0,
        "label": "a",
        "origin": "plain",
        "raters": 1,
    }
    run.publish(
        "preferences",
        {"pairs": contracts.table("pairs", [pair] * 21)},
        files={"statistics.json": _json(STATISTICS)},
        settings={},
        counts={"in": 12, "out": 12},
    )


def _train_reward(run: Written, hostile: bool) -> None:
    reports = [{"step": step, "loss": 3.0 / (1 + step / 60), "phase": "pretraining"} for step in range(0, 320, 10)]
    for step in range(0, 451, 5):
        report = {"step": step, "loss": 0.25 + 0.45 / (1 + step / 80), "phase": "training"}
        if step % 50 == 0:
            report["validation/accuracy"] = 0.87 - 0.33 / (1 + step / 60)
            report["validation/accuracy/visual_quality"] = report["validation/accuracy"] - 0.04
        reports.append(report)
    lines_ = "".join(json.dumps(report) + "\n" for report in reports)
    run.publish(
        "train-reward",
        {},
        files={"metrics.jsonl": lines_.encode()},
        settings={"reward": {"pretraining": {"steps": 320}}},
        results={"pairs": 21},
    )


def _halves(gain: float) -> dict[str, dict]:
    return {
        "most_confident_half": _estimate(0.866 + gain / 2, 0.01),
        "rest": _estimate(0.866 - gain / 2, 0.02),
        "difference": _estimate(gain, 0.03),
    }


def _evaluate_reward(run: Written, hostile: bool) -> None:
    rng = np.random.default_rng(0)
    rows = [_score(row["candidate_id"], "recolour", rng) for row in _candidates()]
    figures = {
        "pair_accuracy": {
            "overall": _estimate(0.866, 0.015, 2400),
            "instruction_following": _estimate(0.871, 0.02),
            "visual_quality": _estimate(0.81, 0.02),
        },
        "heads": {
            "instruction_following": dict(zip(DIMENSIONS, (_estimate(0.871, 0.02), _estimate(0.61, 0.02)), strict=True)),
            "visual_quality": dict(zip(DIMENSIONS, (_estimate(0.60, 0.02), None), strict=True)),
        },
        "calibration": {
            "ece": _estimate(0.021, 0.006),
            "ece_noise": 0.018,
            "overconfidence": _estimate(0.031, 0.01),
            "pairs": 1200,
            "bins": [{"confidence": 0.525 + 0.05 * i, "accuracy": 0.51 + 0.052 * i, "count": 150 + 60 * i} for i in range(9)]
            + [{"confidence": None, "accuracy": None, "count": 0}],
        },
        "confidence": _halves(0.21)
        | {
            "by": {
                name: _halves(gain) | {"curve": [{"share": i / 10} | _estimate(0.866 + gain * (1 - i / 10), 0.02) for i in range(1, 11)]}
                for name, gain in (("probability", 0.21), ("margin", 0.15), ("sigma", 0.02))
            },
            "sigma_adds": _estimate(0.06, 0.02),
        },
        "three_way": {
            "threshold": 0.618,
            "pairs": 1638,
            "accuracy": _estimate(0.74, 0.03),
            "never_tie": _estimate(0.73, 0.03),
            "always_tie": _estimate(0.16, 0.02),
            "log_likelihood": _estimate(-0.7, 0.05),
            "log_likelihood_uninformed": -1.03,
            "ties": [{"predicted": 0.05 + 0.07 * i, "observed": 0.06 + 0.06 * i, "low": 0.03, "high": 0.4, "count": 327} for i in range(5)],
        },
        "per_task": {kind: _estimate(0.95 - 0.03 * i, 0.02) for i, kind in enumerate(items.KINDS)},
        "baselines": {
            "closeness to the source": _estimate(0.683, 0.02),
            "constant": _estimate(0.5, 0.0),
            "random": _estimate(0.497, 0.02),
            "the raters themselves": _estimate(0.92, 0.01),
        },
    }
    rated = figures | {"pair_accuracy": {"overall": _estimate(0.81, 0.02, 2200)}, "baselines": {"constant": _estimate(0.5, 0.0)}}
    evaluation = {
        "against": {"truth": figures, "ratings": rated},
        "likert": {name: {"mean_absolute_error": 0.61, "ratings": 500} for name in DIMENSIONS},
        "conventions": "strict pairs only; a predicted tie counts half",
    }
    run.publish(
        "evaluate-reward",
        {"scores": contracts.table("scores", rows)},
        files={"evaluation.json": _json(evaluation)},
        settings={},
        counts={"in": 144, "out": 144, "quarantined": 0},
    )


def _filter(run: Written, hostile: bool) -> None:
    rng = np.random.default_rng(1)
    edits = []
    for number in range(160):
        item = items.item(0, "noisy", number)
        source, made = images.png(render(item.scene, SIZE)), editors.noisy_edit(item, SIZE)
        edits.append((content_id("sample", source, str(number)), source, item, made))
    rows = [_score(name, item.kind, rng, made.instruction_following_level + made.visual_quality_level) for name, _, item, made in edits]
    ranked = sorted(rows, key=lambda row: -row["overall_mean"])
    chosen = {
        "full": ("all", ranked),
        "selected": ("top", ranked[:69]),
        "random": ("random", [ranked[i] for i in rng.permutation(160)[:69]]),
        "later": ("top", ranked[:20]),
    }
    tables = {
        name: contracts.table(
            "selection",
            [{"sample_id": r["sample_id"], "rank": i, "stratum": "", "score": r["overall_mean"], "rule": rule} for i, r in enumerate(kept)],
        )
        for name, (rule, kept) in chosen.items()
    }
    delivered = [
        {
            "sample_id": name,
            "dataset": "world-edits",
            "source": images.stored(source),
            "instruction": HOSTILE if hostile else item.instruction,
            "edited": images.stored(images.png(made.image)),
            "language": "en",
            "task": item.kind,
            "licence": "",
            "position": "noisy[0]",
            "image_bytes": 1000,
            "metadata": flaws.to_metadata(made),
        }
        for name, source, item, made in edits
    ]
    shown = [row for row in delivered if row["sample_id"] != ranked[0]["sample_id"]]  # as if one image could not be kept
    stored = [row | {"source": {"bytes": None, "path": row["sample_id"]}, "edited": {"bytes": None, "path": None}} for row in delivered]
    scores = completed(contracts.table("scores", rows), contracts.table("edits", stored))
    sha256 = hashlib.sha256(storage.table_bytes(scores)).hexdigest()
    files = {f"selections/{name}.parquet": storage.table_bytes(table) for name, table in tables.items()}
    files |= {f"selections/{name}.json": _json({"scores": settings_hash([sha256])}) for name in tables}
    lost = [
        {"row_id": "", "position": f"records.json[{i}]", "reason": "missing-image", "message": f"v2v_{i}.png is in no tar"}
        for i in range(7)
    ]
    results = {
        name: {"rule": rule, "count": len(kept), "good_share": 0.81 if rule == "top" else 0.52} for name, (rule, kept) in chosen.items()
    }
    names = [
        {"name": "full", "rule": "all"},
        {"name": "selected", "rule": "top", "count": 69},
        {"name": "random", "rule": "random", "count": 69},
    ]
    run.publish(
        "filter",
        {
            "scores": scores,
            "examples": contracts.table("examples", shown),
            "quarantine": contracts.table("quarantine", lost),
        },
        files=files,
        settings={"filter": {"input": {"dataset": "world-edits"}, "note": "Scores of a model trained on shapes.", "selections": names}},
        counts={"in": 167, "out": 160, "quarantined": 7},
        quarantined={"missing-image": 7},
        results={"selections": results, "good_share": 0.51},
    )


def _finetune(run: Written, hostile: bool) -> None:
    curves = {arm: [{"step": step, "loss": 1.9 / (1 + step / 200) + 0.1 * i} for step in range(0, 700, 2)] for i, arm in enumerate(ARMS)}
    files = {f"metrics/{arm}.jsonl": "".join(json.dumps(report) + "\n" for report in curve).encode() for arm, curve in curves.items()}
    run.publish("finetune", {}, files=files, settings={"finetune": {"training": {"seed": 3}}}, results={"arms": list(ARMS)})


def _evaluate_editor(run: Written, hostile: bool) -> None:
    overall = {"copy-of-source": 0.2, "exact-edit": 9.99} | ARMS
    shown, verdicts = [], []
    for number in range(6):
        item = items.item(0, "benchmark", number)
        for arm, mean in overall.items():
            pixels = render(item.target if arm == "exact-edit" else item.scene, SIZE)
            facts = {"item_id": f"item-{number}", "task": item.kind, "arm": arm}
            shown.append(facts | {"instruction": HOSTILE if hostile else item.instruction, "image": images.stored(images.png(pixels))})
            verdict = {
                "language": "en",
                "subsets": [],
                "edit_id": f"{number} {arm}",
                "judge": "world",
                "judge_revision": "1",
                "judge_snapshot": "",
                "attempts": 1,
                "prompt_tokens": 0,
                "completion_tokens": 0,
                "semantic_consistency": mean,
                "perceptual_quality": mean,
                "overall": mean,
                "status": "ok",
                "raw": "",
            }
            verdicts.append(facts | verdict)
    arms = {
        arm: {
            "semantic_consistency": mean,
            "perceptual_quality": mean,
            "overall": mean,
            "low": mean - 0.2,
            "high": mean + 0.2,
            "n": 160,
            "failed": 0,
            "per_task": {"move": mean},
        }
        for arm, mean in overall.items()
    }
    evaluation = {
        "arms": arms,
        "differences": {
            arm: {"value": mean - ARMS["full"], "low": mean - ARMS["full"] - 0.3, "high": mean - ARMS["full"] + 0.3, "n": 160}
            for arm, mean in ARMS.items()
            if arm != "full"
        },
        "reference_arm": "full",
        "judge": {"name": "world", "revision": "1"},
        "caveats": ["Synthetic scenes and a programmatic judge."],
    }
    tables = {"verdicts": contracts.table("verdicts", verdicts), "samples": contracts.table("samples", shown)}
    run.publish(
        "evaluate-editor",
        tables,
        files={"evaluation.json": _json(evaluation)},
        settings={},
        counts={"in": len(verdicts), "out": len(verdicts), "quarantined": 0},
    )


MACHINE = {"machine": {"system": "Linux", "cores": 2, "gpus": []}, "python": "3.11.9", "packages": {"torch": "2.13.0"}, "seed": 0}
ARMS = {"base": 2.2, "full": 2.5, "selected": 4.52, "random": 2.55, "naive": 3.2}
WRITERS = {
    "generate": _generate,
    "annotate": _annotate,
    "preferences": _preferences,
    "train-reward": _train_reward,
    "evaluate-reward": _evaluate_reward,
    "filter": _filter,
    "finetune": _finetune,
    "evaluate-editor": _evaluate_editor,
}


def _estimate(value: float, half: float, n: int | None = None) -> dict:
    return {"value": value, "low": value - half, "high": value + half} | ({"n": n} if n else {})


STATISTICS = {
    "groups": {"train": 2, "validation": 10},
    "pairs": {"train": {"strict": 30, "tie": 8, "tie-disentangled": 4}, "validation": {"strict": 150, "tie": 40, "tie-disentangled": 20}},
    "tie_shares": {"instruction_following": 0.36, "visual_quality": 0.34, "overall": 0.17, "opposed": 0.09},
    "paper_tie_shares": {"instruction_following": 0.3828, "visual_quality": 0.3283, "overall": 0.2068},
    "win_rates": {
        f"world/{name}": {"overall": _estimate(0.4 + 0.04 * i, 0.03), DIMENSIONS[0]: _estimate(0.5, 0.1)}
        for i, name in enumerate(editors.EDITORS)
    },
    "score_shares": {
        "by_editor": {f"world/{name}": {DIMENSIONS[0]: {"ratings": 40, "mean": 2.9, "levels": {}}} for name in editors.EDITORS}
    },
}


def _score(sample_id: str, task: str, rng: np.random.Generator, level: float = 5) -> dict:
    means = (level - 5) / 2 + rng.normal(0, 0.5, 2)
    sigma = float(rng.uniform(0.4, 1.2))
    return {
        "sample_id": sample_id,
        "scorer_revision": "r",
        "dimensions": [
            {"dimension": name, "mean": float(mean), "sigma": sigma, "likert": 2.5} for name, mean in zip(DIMENSIONS, means, strict=True)
        ],
        "overall_mean": float(means.mean()),
        "overall_sigma": sigma,
        "change_from_source": 9.0,
        "task": task,
        "language": "en",
        "flags": [],
    }


def _json(value: dict) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


# ---- the page


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(make_run(tmp_path_factory.mktemp("report") / "runs" / "small"))


def test_a_complete_run_shows_every_section_and_its_numbers(whole: Path) -> None:
    page = Page(whole)
    assert [attributes["id"] for attributes in page.all("section")] == SECTION_IDS
    words = page.words().replace("\u202f", " ")
    for expected in (
        "Filtering raises good edits from 45 % to 87 %; the editor trained on them gains 2.02 of 10.",
        "Accuracy of the reward model 86.6 % 95 % interval 85.1 % to 88.1 %; held-out pairs in the order of ground-truth quality; "
        "closeness to the source reaches 68.3 %",
        "trained on “full (unfiltered)” 2.50 of 10 trained on “selected” 4.52 of 10 exact edit",
        "Synthetic or simulated in this run: sources, candidates, ratings, the model's warm-up, noisy edits and the judge. What this means",
        "best 12",
        "best 69",  # as many as the main selection keeps
        "+2.02 [+1.72, +2.32]",
        "no variation",  # a statistic without a value says why
        "38.3 %",  # the paper's tie share
        "closeness to the source",
        "another rater",
        "Calibration error (ECE) 0.021 [0.015, 0.027]",
        "A calibrated model would show 0.018 on as many pairs.",
        "On the whole the model is 3.1 points overconfident.",
        "by +6.0 points (+4.0 to +8.0): sigma predicts errors better than the margin alone.",
        "87.1 % [85.1 %, 89.1 %]",  # the head of a dimension on that dimension
        "is right for 74.0 % of all pairs (71.0 % to 77.0 %). Never predicting a tie is right for 73.0 %",
        "always predicting one for 16.0 %.",
        "Predicted P(tie)",
        "EditReward paper, Table 3",
        "6.44",
        "quarantined: missing-image",
        "v2v_4.png is in no tar",
        "the editor ran out of memory",
        "pipeline run filter",
        "2.13.0",
        "name: small",
    ):
        assert expected in words, expected
    assert "v2v_5.png" not in words  # examples are limited
    assert set(re.findall(r"(\w+) (?:IF|VQ) [\d−.]", words)) == {"rated"}  # no other scale has the name of a human rating
    assert "Not done yet" not in words
    assert words.count("Scores of a model trained on shapes.") == 2  # above the scores and the galleries
    assert "Just above the cut: the lowest-ranked edits that “selected” keeps" in words and "Just below the cut: the best edits" in words
    assert words.count("difference ×3") == 12 * 5 - 1
    assert "Everything shown is inside this file (" in words
    assert whole.stat().st_size < 5e6


def test_everything_is_inside_the_file(whole: Path) -> None:
    page = Page(whole)
    for _, attributes in page.tags:
        for name in ("src", "href", "srcset", "action", "data", "poster"):
            target = attributes.get(name)
            assert target is None or target.startswith(("data:image/", "#", "report-images/")), target
    linked = {attributes["href"] for attributes in page.all("a")} - {f"#{name}" for name in [*SECTION_IDS]}
    assert linked == {f"report-images/{path.name}" for path in (whole.parent / "report-images").iterdir()} and len(linked) > 50
    assert not page.all("script") and not page.all("link") and not page.all("iframe")
    style = page.source[page.source.index("<style>") : page.source.index("</style>")]
    assert "url(" not in style and "@import" not in style


def test_a_link_leads_to_the_stored_bytes_and_an_old_image_goes_away(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", until="filter")
    folder = build(run).with_name("report-images")
    stored = Published(run).table("filter", "examples", ["source", "edited"])
    assert stored is not None
    known = {hashlib.sha256(row[side]["bytes"]).hexdigest()[:16] for row in stored.to_pylist() for side in ("source", "edited")}
    files = list(folder.iterdir())
    assert files and {path.stem for path in files} <= known
    assert all(hashlib.sha256(path.read_bytes()).hexdigest().startswith(path.stem) and path.suffix == ".png" for path in files)
    (folder / f"{'0' * 16}.png").write_bytes(b"of an earlier page")
    for name in ("notes.txt", "IMG_202601010001.jpg"):
        (folder / name).write_text("not ours")
    build(run)
    assert sorted(folder.iterdir()) == sorted([*files, folder / "notes.txt", folder / "IMG_202601010001.jpg"])


def test_pictures_and_charts_have_words(whole: Path) -> None:
    page = Page(whole)
    assert len(page.all("img")) > 100
    assert all(attributes["alt"].strip() and int(attributes["width"]) > 0 for attributes in page.all("img"))
    drawings = re.findall(r"<svg.*?</svg>", page.source, re.DOTALL)
    assert len(drawings) > 12
    assert all(re.search(r"<title>[^<]+</title><desc>[^<]+</desc>", drawing) and 'role="img"' in drawing for drawing in drawings)


def test_what_people_wrote_is_text(tmp_path: Path) -> None:
    page = Page(build(make_run(tmp_path / "run", hostile=True)))
    assert not page.all("script") and "<script" not in page.source
    assert page.words().count("<script>alert('x')</script> & make the") > 10
    assert any(attributes["alt"].endswith(HOSTILE) for attributes in page.all("img"))


@pytest.mark.parametrize("until", list(WRITERS)[:-1])
def test_a_partial_run_names_the_commands_that_are_missing(until: str, tmp_path: Path) -> None:
    page = Page(build(make_run(tmp_path / "runs" / "part", until=until)))
    words = page.words()
    steps = list(WRITERS)
    done = steps[: steps.index(until) + 1]
    wanted = ["result", *(name for name, needs in NEEDS.items() if needs & {*done}), "next", "quarantine", "provenance"]
    assert [attributes["id"] for attributes in page.all("section")] == wanted
    for step in steps:
        sentence = f"Not done yet: step {step}. Do it with pipeline"
        assert (sentence in words) == (steps.index(step) > steps.index(until)), step
    assert "pipeline run evaluate-editor --config runs/part/config.yaml --run runs/part" in words


def test_an_empty_run_directory_has_a_page_and_no_directory_a_sentence(tmp_path: Path) -> None:
    words = Page(build(RunDir(tmp_path))).words()
    assert "Nothing is measured yet; 0 of 8 steps are done." in words
    assert words.count("Not done yet") == 8
    with pytest.raises(ValueError, match="there is no run directory"):
        build(RunDir(tmp_path / "absent"))


def test_what_the_configuration_does_not_have_is_not_asked_for(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", until="generate")
    storage.publish_bytes(run.path / "config.yaml", b"name: small\ngenerate: {}\nfilter: {}\nfinetune: null\nevaluate_editor: {}\n")
    page = Page(build(run))
    assert page.words().count("Not done yet: step") == 6
    assert "finetune" not in re.sub(r"name: small.*", "", page.words())


def test_building_again_gives_the_same_bytes_and_changes_nothing_else(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    before = run.artifact_hashes()
    first = build(run).read_bytes()
    assert build(run).read_bytes() == first
    assert run.artifact_hashes() == before
    assert not [path for path in run.path.rglob("*") if storage.TEMPORARY in path.name]


def test_a_running_training_shows_its_curve_and_a_torn_line_does_not_count(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", until="train-reward")
    folder = run.path / "train-reward"
    (folder / "index.json").unlink()
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 455, "loss": 0.2')
    words = Page(build(run)).words()
    assert "Not done yet: step train-reward" in words
    assert "Ranking, loss" in words and "Not done yet: step evaluate-reward" in words


def test_edits_without_images_are_counted_not_hidden(whole: Path) -> None:
    assert "The images of 1 of these 12 edits are not stored in this run" in Page(whole).words()


def test_a_selection_made_later_is_shown_while_it_is_of_the_present_scores(whole: Path, tmp_path: Path) -> None:
    assert "selection “later”" in Page(whole).words()
    run = make_run(tmp_path / "run", until="filter")
    storage.publish_json(run.path / "filter" / "selections" / "later.json", {"scores": "of an earlier scoring"})
    assert "selection “later”" not in Page(build(run)).words()


# ---- pieces


def test_large_images_become_previews_and_small_ones_stay_as_they_are() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (300, 900, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "WEBP")
    preview = picture(buffer.getvalue(), alt="a")
    assert preview.uri is not None
    assert preview.uri.startswith("data:image/jpeg;base64,")
    assert (preview.width, preview.height, preview.pixelated) == (256, 85, False)
    small = images.png(pixels[:32, :32])
    shown = picture(small, alt="a")
    assert shown.uri is not None
    assert shown.pixelated and np.array_equal(Image.open(io.BytesIO(base64.b64decode(shown.uri.split(",")[1]))), pixels[:32, :32])
    damaged = picture(small[:60], alt="a", lines=("source",))
    assert damaged.uri is None
    assert damaged.lines == ("source", "the image does not decode")


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_ticks_are_few_and_inside(low: float, span: float) -> None:
    high = low + span
    assume(high - low > 1e-9 * abs(low))
    found = round_values(low, high)
    assert 2 <= len(found) <= 7
    slack = 1e-6 * (high - low) + 1e-9
    assert low - slack <= found[0]
    assert found[-1] <= high + slack


def test_ticks_are_round() -> None:
    assert round_values(0.03, 0.97) == [0.2, 0.4, 0.6, 0.8]
    assert round_values(-1.3, 7.2) == [0.0, 2.0, 4.0, 6.0]
    assert round_values(0, 450) == [0, 100, 200, 300, 400]


def test_a_long_curve_is_drawn_as_means_and_keeps_its_level() -> None:
    steps = list(range(12_800))
    drawn = str(lines([Series("loss", steps, [2.0 + (-1) ** step for step in steps])], title="t", x_label="step", y_label="loss"))
    points = re.search(r'<polyline points="([^"]+)"', drawn)
    assert points is not None
    heights = {float(pair.split(",")[1]) for pair in points[1].split()}
    assert len(points[1].split()) == MOST_POINTS
    assert len(heights) == 1  # the alternation averages out


def test_histogram_heights_are_shares_of_each_sample() -> None:
    drawn = str(histogram({"all": np.linspace(0, 1, 1000), "kept": np.full(100, 0.75)}, title="t", x_label="score"))
    columns = [float(value) for value in re.findall(r'<rect [^>]*height="([\d.]+)"', drawn)]
    line = re.search(r'<polyline points="([^"]+)"', drawn)
    assert line is not None
    heights = [float(pair.split(",")[1]) for pair in line[1].split()]
    assert len(columns) == BINS
    assert max(heights) - min(heights) == pytest.approx(sum(columns), rel=0.02)  # one bin holds all of "kept", all bins hold all of "all"
    assert "1,000 values, median 0.500" in drawn


def test_failed_calls_of_the_judge_are_shown_with_the_arms(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    assert "Failed calls" not in Page(build(run)).words()
    value = storage.read_json(run.path / "evaluate-editor" / "evaluation.json")
    value["arms"]["full"] |= {
        "failed": 3,
        "failures": {"refused": 2, "api_error": 1},
        "overall_failures_zero": 1.25,
        "over_tasks_failures_zero": 1.5,
        "thin_tasks": ["move"],
    }
    storage.publish_json(run.path / "evaluate-editor" / "evaluation.json", value)
    words = Page(build(run)).words()
    assert "Failed calls" in words and "refused 2" in words and "1.25" in words


@pytest.mark.parametrize(
    ("until", "difference", "everything_good", "verdict"),
    [
        ("evaluate-editor", (0.05, -0.1, 0.2), False, "from 45 % to 87 %; the editor trained on them gains 0.05 of 10, perhaps chance."),
        (
            "evaluate-editor",
            (-0.5, -0.7, -0.3),
            True,
            "does not raise good edits (100 % to 100 %); the editor trained on them loses 0.50 of 10.",
        ),
        ("evaluate-editor", (-0.05, -0.7, 0.3), True, "(100 % to 100 %); the editor trained on them loses 0.05 of 10, perhaps chance."),
        ("filter", (), False, "from 45 % to 87 %; the reward model orders 87 % of held-out pairs like ground truth."),
        ("evaluate-reward", (), False, "The reward model orders 87 % of held-out pairs like ground truth."),
        ("train-reward", (), False, "Nothing is measured yet; 4 of 8 steps are done."),
    ],
)
def test_the_verdict_is_short_and_says_what_may_be_chance(
    tmp_path: Path, until: str, difference: tuple[float, ...], everything_good: bool, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "run", until=until)
    if difference:
        value = storage.read_json(run.path / "evaluate-editor" / "evaluation.json")
        value["differences"]["selected"].update(zip(("value", "low", "high"), difference, strict=True))
        storage.publish_json(run.path / "evaluate-editor" / "evaluation.json", value)
    if everything_good:
        monkeypatch.setattr(scored_edits.readers, "good", lambda metadata: np.ones(len(metadata), bool))
    said = headline.verdict(Published(run)).replace("\u202f", " ")
    assert said.endswith(verdict)
    assert len(said.replace(" %", "%").split()) <= 20


def test_the_verdict_names_the_training_set_unless_it_is_what_the_filter_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `reference_arm: selected` the difference is of another set; without ground truth nothing is said of what was kept."""
    run = make_run(tmp_path / "run")
    path = run.path / "evaluate-editor" / "evaluation.json"
    value = storage.read_json(path)
    only = {"differences": {"base": value["differences"]["base"], "full": _estimate(-2.02, 0.3)}, "reference_arm": "selected"}
    storage.publish_json(path, value | only)
    assert headline.verdict(Published(run)).endswith("; the editor trained on “full” loses 2.02 of 10.")
    storage.publish_json(path, value)
    monkeypatch.setattr(headline, "good_shares", lambda _: {})
    assert headline.verdict(Published(run)) == "The editor trained on “selected” gains 2.02 of 10."


@pytest.mark.parametrize(
    ("added", "verdict"),
    [((0.01, 0.03), "no demonstrated gain from sigma"), ((-0.05, 0.02), "sigma predicts errors worse than the margin alone")],
)
def test_what_sigma_adds_is_said_as_it_is(tmp_path: Path, added: tuple[float, float], verdict: str) -> None:
    run = make_run(tmp_path / "run", until="evaluate-reward")
    value = storage.read_json(run.path / "evaluate-reward" / "evaluation.json")
    for figures in value["against"].values():
        figures["confidence"]["sigma_adds"] = _estimate(*added)
    storage.publish_json(run.path / "evaluate-reward" / "evaluation.json", value)
    assert verdict in Page(build(run)).words()


def test_what_no_unseen_group_could_measure_is_left_out(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", until="evaluate-reward")
    value = storage.read_json(run.path / "evaluate-reward" / "evaluation.json")
    for figures in value["against"].values():
        figures |= {"three_way": None, "calibration": {"ece": None, "ece_noise": None, "overconfidence": None, "bins": [], "pairs": 0}}
    storage.publish_json(run.path / "evaluate-reward" / "evaluation.json", value)
    words = Page(build(run)).words()
    assert "Accuracy among the most confident pairs" in words
    assert "Calibration of P(a is better)" not in words and "P(tie)" not in words


def test_estimates_are_read_with_tolerance() -> None:
    assert Estimate.read({"value": None, "note": "no variation"}) is None
    assert Estimate.read("no variation") is None
    assert Estimate.read(float("nan")) is None
    assert Estimate.read(True) is None
    assert Estimate.read(0.5) == Estimate(0.5)
    assert Estimate.read({"value": 0.5, "low": 0.4, "high": 0.6, "n": 3, "unit": "x"}) == Estimate(0.5, 0.4, 0.6, 3)


def test_failed_judgements_are_shown_with_what_they_change(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    path = run.path / "evaluate-editor" / "evaluation.json"
    value = storage.read_json(path)
    assert "Failed calls" not in Page(build(run)).words()
    value["arms"]["base"] |= {
        "failures": {"refused": 12, "no-answer": 4},
        "overall_failures_zero": 1.98,
        "over_tasks_failures_zero": 1.97,
        "thin_tasks": ["move"],
    }
    storage.publish_json(path, value)
    assert "base no answer 4, refused 12 1.98 1.97 move" in Page(build(run)).words()


def test_values_of_steps_as_cells() -> None:
    assert words.cell({"value": -0.5, "low": -0.6, "high": -0.4}, words.score) == "−0.50 [−0.60, −0.40]"
    assert words.cell({"value": None, "note": "no variation"}, words.score) == "no variation"
    assert words.cell(0.25, words.precise) == "0.250"
    assert words.cell(None, words.score) == words.cell({}, words.score) == "–"
    assert (
        words.bounds(Estimate(0.5, 0.4, 0.6), words.percent) == "40\u202f% to 60\u202f%"
        and words.bounds(Estimate(0.5), words.percent) == ""
    )
    assert [words.duration(seconds) for seconds in (4.21, 185, 7_800, 200_000)] == ["4.2 s", "3 min 05 s", "2 h 10 min", "2.3 days"]
    assert [words.size(count) for count in (12, 2.5e9, 4e16)] == ["0.0 MB", "2.5 GB", "40.0 PB"]


def test_a_baseline_selection_is_called_one(tmp_path: Path) -> None:
    found = Published(make_run(tmp_path / "run", until="filter"))
    assert [found.label(name) for name in ("full", "selected", "later")] == ["full (unfiltered)", "selected", "later"]


# ---- a real browser


def in_browser(page: str, folder: Path, width: int) -> dict:
    """What headless Chromium measures of the page, with everything unfolded, in a frame of this width.

    A window of the browser cannot be as narrow as a phone, a frame can.
    """
    measure = """<script>addEventListener("load", () => {
      const wide = [...document.querySelectorAll("body *")]
        .filter(e => !e.closest(".scroll, pre, svg, .skip") && e.getBoundingClientRect().right > innerWidth + 0.5)
        .map(e => e.outerHTML.slice(0, 80));
      const broken = [...document.images].filter(e => !e.complete || e.naturalWidth === 0).length;
      const cut = [...document.querySelectorAll("svg text")].filter(e => {
        const [own, box] = [e.getBoundingClientRect(), e.ownerSVGElement.getBoundingClientRect()];
        return own.left < box.left - 1 || own.right > box.right + 1;
      }).map(e => e.textContent);
      const apart = [...document.querySelectorAll(".example .pictures")]
        .filter(e => new Set([...e.children].map(shown => Math.round(shown.getBoundingClientRect().top))).size > 1).length;
      const [inner, width, images] = [innerWidth, document.documentElement.scrollWidth, document.images.length];
      const facts = {cut, apart, inner, width, wide, broken, images};
      parent.postMessage(JSON.stringify(facts), "*");
    })</script></body>"""
    open_page = re.sub(r"<meta http-equiv[^>]+>", "", page.replace("<details>", "<details open>")).replace("</body>", measure)
    open_page = open_page.replace("</style>", ".tabs > .panels > .panel { display: block; }</style>", 1)
    (folder / "inner.html").write_text(open_page, encoding="utf-8")
    outer = f"""<!doctype html><title>-</title><body style="margin:0">
      <script>addEventListener("message", e => document.documentElement.setAttribute("data-measured", e.data))</script>
      <iframe src="inner.html" style="border:0;width:{width}px;height:900px"></iframe>"""
    (folder / "outer.html").write_text(outer, encoding="utf-8")
    command = [
        str(CHROMIUM),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
    ]
    command += ["--disable-component-update", "--disable-sync", f"--user-data-dir={folder / 'profile'}", "--window-size=1400,1000"]
    command += ["--virtual-time-budget=5000", "--dump-dom", (folder / "outer.html").as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    measured = re.search(r'data-measured="([^"]+)"', done.stdout)
    assert measured is not None, done.stdout[-500:] + done.stderr[-500:]
    return json.loads(html.unescape(measured[1]))


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine to look at the page with")
@pytest.mark.parametrize("width", [1280, 390])
def test_in_a_browser_nothing_is_wider_than_the_window(whole: Path, tmp_path: Path, width: int) -> None:
    measured = in_browser(whole.read_text(encoding="utf-8"), tmp_path, width)
    assert measured["inner"] == width
    assert measured["wide"] == []
    assert measured["cut"] == []
    assert measured["apart"] == 0, "the three pictures of an edit are in one row"
    assert measured["width"] <= width
    assert measured["images"] > 100
    assert measured["broken"] == 0
