"""The report of a small run directory that is written through the real contracts: complete, partial, hostile, and in a real browser."""

from __future__ import annotations

import hashlib
import html
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pipeline.report import build
from pipeline.report.charts import axes
from pipeline.report.charts.histogram import histogram
from pipeline.report.charts.lines import MOST_POINTS, Series, lines
from pipeline.report.estimates import Estimate
from pipeline.report.pictures import picture
from stages import contracts, images, storage
from stages.ids import content_id
from stages.rundir import Index, RunDir
from stages.units import publish_unit
from stages.world import editors, items, raters
from stages.world.scenes import render

SIZE = 32
DIMENSIONS = contracts.DIMENSIONS
HOSTILE = "<script>alert('x')</script> & make the \"circle\" blue"
SECTION_IDS = ["result", "flow", "samples", "ratings", "reward", "filter", "arms", "quarantine", "provenance"]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


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
    """Steps in their order up to ``until``; numbers are made up, images are drawn by the embedded world."""
    run = Written(path)
    for step, write in WRITERS.items():
        write(run, hostile)
        if step == until:
            break
    storage.publish_bytes(path / "config.yaml", b"name: small\nseed: 0\n")
    return run.run


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


def _candidates() -> list[dict]:
    rows = []
    for item, source in _sources():
        for name in editors.EDITORS:
            for seed in (0, 1):
                made = editors.edit(item, SIZE, name, seed)
                truth = {"instruction_following": made.instruction_following_level, "visual_quality": made.visual_quality_level}
                rows.append(
                    {
                        "candidate_id": content_id("candidate", source["source_id"], name, seed),
                        "source_id": source["source_id"],
                        "editor": f"world/{name}",
                        "editor_revision": "1",
                        "seed": seed,
                        "settings_hash": "0",
                        "image": images.stored(images.png(made.image)),
                        "status": "ok",
                        "error": "",
                        "annotate": seed == 0 or name == next(iter(editors.EDITORS)),
                        "metadata": json.dumps(truth),
                    }
                )
    rows[3] |= {"status": "failed", "error": "the editor ran out of memory", "image": None, "annotate": False}
    return rows


def _generate(run: Written, hostile: bool) -> None:
    sources = [row for _, row in _sources()]
    if hostile:
        sources[0]["instruction"] = HOSTILE
    lost = [{"row_id": "s-9", "position": "sources[9]", "reason": "undecodable", "message": "the image does not decode (truncated)"}]
    tables = {
        "sources": contracts.table("sources", sources),
        "candidates": contracts.table("candidates", _candidates()),
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
    for number, candidate in enumerate(row for row in _candidates() if row["annotate"]):
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
            report["validation_accuracy"] = 0.87 - 0.33 / (1 + step / 60)
        reports.append(report)
    lines_ = "".join(json.dumps(report) + "\n" for report in reports)
    run.publish(
        "train-reward",
        {},
        files={"metrics.jsonl": lines_.encode()},
        settings={"reward": {"pretraining": {"steps": 320}}},
        results={"pairs": 21},
    )


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
            "instruction_following": dict(zip(DIMENSIONS, (0.871, 0.61), strict=True)),
            "visual_quality": dict(zip(DIMENSIONS, (0.60, 0.81), strict=True)),
        },
        "calibration": {
            "ece": 0.021,
            "bins": [{"confidence": 0.525 + 0.05 * i, "accuracy": 0.51 + 0.052 * i, "count": 150 + 60 * i} for i in range(9)]
            + [{"confidence": None, "accuracy": None, "count": 0}],
        },
        "confidence": {"most_confident_half": 0.97, "rest": 0.76},
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
    }
    tables = {
        name: contracts.table(
            "selection",
            [{"sample_id": r["sample_id"], "rank": i, "stratum": "", "score": r["overall_mean"], "rule": rule} for i, r in enumerate(kept)],
        )
        for name, (rule, kept) in chosen.items()
    }
    files = {f"selections/{name}.parquet": storage.table_bytes(table) for name, table in tables.items()}
    files["shards/full/000000.tar"] = _shard(
        [(name, source, images.png(made.image), HOSTILE if hostile else item.instruction, item.kind) for name, source, item, made in edits]
    )
    lost = [
        {"row_id": "", "position": f"records.json[{i}]", "reason": "missing-image", "message": f"v2v_{i}.png is in no tar"}
        for i in range(7)
    ]
    good = dict(zip(chosen, (0.51, 0.81, 0.52), strict=True))
    run.publish(
        "filter",
        {"scores": contracts.table("scores", rows), "quarantine": contracts.table("quarantine", lost)},
        files=files,
        settings={"filter": {"input": {"dataset": "world-edits", "count": 167}, "note": "Scores of a model trained on shapes."}},
        counts={"in": 167, "out": 160, "quarantined": 7},
        quarantined={"missing-image": 7},
        results={"selections": {name: len(kept) for name, (_, kept) in chosen.items()}, "good_share": good},
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
                "judge": "world",
                "judge_revision": "1",
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


def _shard(samples: list[tuple[str, bytes, bytes, str, str]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, source, edited, instruction, task in samples:
            facts = json.dumps({"sample_id": name, "instruction": instruction, "task": task}).encode()
            for suffix, data in (("source.png", source), ("edited.png", edited), ("json", facts)):
                member = tarfile.TarInfo(f"{name}.{suffix}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def _json(value: dict) -> bytes:
    return json.dumps(value, sort_keys=True).encode()
