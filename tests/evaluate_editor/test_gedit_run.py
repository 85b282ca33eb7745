"""A run on a copy of GEdit-Bench: a server that stops, resuming, a second judge, and the edits exported and judged again."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import gedit_copy
import numpy as np
import pytest
import yaml
from click.testing import CliRunner
from judge_server import MODEL, Answered, is_quality, scored, serving
from PIL import Image
from tiny_model import BACKBONE

from finetune import codec
from finetune.config import CodecConfig, DenoiserConfig, EditorConfig, SamplerConfig
from finetune.editor import Editor
from pipeline import config
from pipeline.cli import main
from pipeline.planning.plan import plan
from pipeline.report.page import build
from reward import RewardModel
from reward.config import HeadConfig, PresentationConfig, RewardModelConfig
from stages.context import Context
from stages.engine import contracts, images, storage
from stages.engine.cluster import Cluster
from stages.engine.rundir import RunDir
from stages.engine.units import publish_table
from stages.evaluate_editor import step

ITEMS = 22
SYSTEMS = 3  # the copy, the editor, somebody's edits


def tiny_editor(folder: Path) -> Path:
    """Random weights, 8 pixels."""
    settings = EditorConfig(
        image_size=8,
        codec=CodecConfig(patches_per_side=2, channels=4),
        denoiser=DenoiserConfig(heads=1, head_dim=6, rope_axes=(2, 2, 2), single_blocks=1, text_dim=4),
        sampler=SamplerConfig(steps=2),
    )
    pixels = np.random.default_rng(0).integers(0, 256, (20, 8, 8, 3)).astype(np.uint8)
    Editor.from_config(settings, codec.fit(pixels, settings.codec), ["do it with many words of any kind"]).save(folder)
    return folder


def publish_sources(run: Path, pictures: list[bytes]) -> None:
    """The step generate of a run whose ratings are of these images."""
    facts = {
        "dataset": "mine",
        "split": "train",
        "group": "g",
        "instruction": "do",
        "language": "en",
        "task": "",
        "metadata": "{}",
        "benchmark": "",
        "licence": "",
    }
    rows = [facts | {"source_id": str(number), "image": images.stored(data)} for number, data in enumerate(pictures)]
    folder = RunDir(run).step("generate")
    draft, _ = folder.begin(settings={}, inputs={}, force=False)
    folder.publish(draft, artifacts={"sources": publish_table(folder, "sources", contracts.table("sources", rows))})


def test_a_run_that_is_stopped_and_resumed(tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JUDGE_KEY", "secret")
    gedit_copy.write(tmp_path / "gedit", gedit_copy.rows(languages=("en",)))
    calls = {"left": 30}
    answered: Counter[str] = Counter()

    def stopping(body: dict, before: int) -> Answered:
        calls["left"] -= 1
        if calls["left"] < 0:
            return Answered({"error": {"message": "gone"}}, 503)
        answered[json.dumps(body)] += 1
        return scored(6, 8) if is_quality(body) else scored(7, 9)

    with serving(stopping) as server, serving(lambda body, _: scored(5, 5, model="other")) as other:
        judge = {"name": "endpoint", "base_url": server.url, "model": MODEL, "key_variable": "JUDGE_KEY", "backoff": 0.001, "patience": 0}
        wanted: dict[str, Any] = {
            "name": "x",
            "evaluate_editor": {
                "items": {"name": "gedit-bench", "path": "gedit"},
                "judge": judge,
                "editors": [{"editor": "trained", "name": "tiny", "settings": {"path": str(tiny_editor(tmp_path / "editor"))}}],
                "edits": [{"name": "theirs", "path": "theirs"}],
                "reference_arm": "theirs",
                "bootstrap": 100,
                "workers": 1,
            },
        }
        for row in gedit_copy.rows(languages=("en",)):
            target = tmp_path / "theirs" / "fullset" / row["task_type"] / "en" / f"{row['key']}.png"
            target.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (20, 30), (int(row["key"][1:]), 9, 9)).save(target)

        def context(**changed: Any) -> Context:
            section = wanted["evaluate_editor"] | changed
            (tmp_path / "x.yaml").write_text(yaml.safe_dump(wanted | {"evaluate_editor": section}))
            return Context(RunDir(tmp_path / "run"), config.load(tmp_path / "x.yaml").flow, cluster, force=bool(changed))

        publish_sources(tmp_path / "run", [gedit_copy.png(number, (96, 64)) for number in (4, 7, 500)])
        assert "3 systems x 22 items, judge judge-1; about 132 calls" in plan(context().flow, tmp_path / "run")
        with pytest.raises(ValueError, match="failed in succession"):
            step.run(context())
        edits = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("benchmark_edits.parquet")}
        assert len(edits) == SYSTEMS * 2  # all edits were made
        (tmp_path / "empty").mkdir()
        with pytest.raises(ValueError, match="empty has no edit of any of the 22 items; the first: there is no fullset/"):
            step.run(context(edits=[{"name": "empty", "path": "empty"}], reference_arm="empty"))
        calls["left"] = 10_000
        index = step.run(context())
        before = len(server.requests)
        assert set(answered.values()) == {1} and set(server.keys) == {"Bearer secret"}  # nothing was paid for twice
        assert step.run(context()).key == index.key and len(server.requests) == before
        assert "failed" not in index.results
        assert index.counts == {"in": 66, "out": 66, "quarantined": 0}
        assert list(index.results["overall"].values()) == [pytest.approx(42**0.5)] * SYSTEMS
        assert b"secret" not in b"".join(path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file())

        before = len(server.requests)
        settings = RewardModelConfig(backbone=BACKBONE, presentation=PresentationConfig(image_area=256), heads=HeadConfig(hidden=(8,)))
        RewardModel.from_config(settings, ["do it"], seed=3).save(tmp_path / "reward")
        beside = {
            "further_judges": [{"name": "endpoint", "base_url": other.url, "model": "other"}],
            "measures": [{"name": "changed", "function": "gedit_copy:share_changed"}],
            "reward": {"model": str(tmp_path / "reward")},
        }
        again = step.run(context(**beside))
        assert len(server.requests) == before and len(other.requests) == len(answered)
        assert {path: path.stat().st_mtime_ns for path in edits} == edits  # no edit was made again
        evaluation = storage.read_json(tmp_path / "run" / "evaluate-editor" / "evaluation.json")
        assert evaluation["contamination"] == {"items": 22, "seen": 2, "sources": 3}
        assert evaluation["judge"]["name"] == MODEL and evaluation["further_judges"][0]["judge"]["name"] == "other"
        assert evaluation["further_judges"][0]["arms"]["tiny"]["overall"] == pytest.approx(5)
        assert again.results["overall"] == index.results["overall"]
        measures = evaluation["measures"]
        assert measures["changed"]["copy-of-source"] == {"mean": None, "n": 0}
        assert measures["changed"]["theirs"]["mean"] == pytest.approx(evaluation["preservation"]["theirs"]["changed_share"], abs=1e-4)
        assert {name: entry["n"] for name, entry in measures["reward"].items()} == {"copy-of-source": 22, "theirs": 22, "tiny": 22}
        assert len({entry["mean"] for entry in measures["reward"].values()}) == 3
        assert any("no independent judgement" in caveat for caveat in evaluation["caveats"])
        page = build(RunDir(tmp_path / "run")).read_text(encoding="utf-8")
        assert (
            "2 of the 22 items have an image that the reward model" in page
            and "The same edits, judged by other" in page
            and "Published figures of GEdit-Bench" in page
            and "What edits keep" in page
            and "Reward (not independent)" in page
        )

        said = CliRunner().invoke(main, ["editor-bench", "agreement", "--run", "run"], catch_exceptions=False).output
        assert f"{MODEL} " in said and "44 edits judged by both, 0 by one of them only" in said and "Spearman" in said
        target = ["editor-bench", "export", "--config", "x.yaml", "--run", "run", "--target", "out"]
        said = CliRunner().invoke(main, target, catch_exceptions=False).output
        assert "out/tiny: 22 edits" in said and "out/theirs: 22 edits" in said
        exported = sorted(path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.png"))
        assert len(exported) == 2 * 2 * ITEMS and exported[0] == "theirs/fullset/background_change/en/k000.png"
        assert exported[1] == "theirs/fullset/background_change/en/k000_SRCIMG.png"
        assert Image.open(tmp_path / "out" / exported[0]).size == (20, 30) and Image.open(tmp_path / "out" / exported[1]).size == (48, 32)

        before = len(server.requests)
        once_more = {"edits": [{"name": "theirs", "path": "out/theirs"}, {"name": "copied", "path": "out/tiny"}], "editors": []}
        results = step.run(context(**once_more)).results
        assert len(server.requests) == before and results["overall"]["copied"] == index.results["overall"]["tiny"]
