"""Configuration of the step, and its work with systems and items that are not the toy data set's."""

from __future__ import annotations

from pathlib import Path

import gedit_copy
import numpy as np
import pytest
from PIL import Image

from stages.config import FlowConfig
from stages.context import Context
from stages.editors.editor import EditRequest
from stages.editors.trained import TrainedEditor
from stages.engine import storage
from stages.engine.cluster import Cluster
from stages.engine.config import RayConfig
from stages.engine.rundir import RunDir
from stages.evaluate_editor import generation, judging, step
from stages.evaluate_editor.judges.endpoint import OFFICIAL_BACKBONE, EndpointJudge
from stages.evaluate_editor.preservation import preservation
from stages.evaluate_editor.systems import COPY, EXACT, systems

SIDE = 8


def test_a_trained_editor_edits_at_its_size_and_gives_back_the_sources() -> None:
    seen = []

    class Small:
        class config:
            image_size = SIDE

        def edit(self, sources: np.ndarray, instructions: list[str], *, seeds: list[int]) -> np.ndarray:
            seen.append((sources.shape, instructions, seeds))
            return 255 - sources

    sizes = [(20, 12), (SIDE, SIDE)]
    batch = [EditRequest(Image.new("RGB", size, (40 * n, 0, 0)), "do", 7 + n) for n, size in enumerate(sizes)]
    edited = TrainedEditor(Small()).edit(batch)  # ty: ignore[invalid-argument-type]
    assert seen == [((2, SIDE, SIDE, 3), ["do", "do"], [7, 8])]
    assert [one.image.size for one in edited] == sizes and (np.asarray(edited[1].image)[..., 0] == 215).all()


def test_items_of_the_toy_data_set_need_its_section() -> None:
    flow = FlowConfig.model_validate({"name": "x", "evaluate_editor": {"items": 8}})
    assert flow.evaluate_editor is not None and flow.evaluate_editor.model_dump(mode="json")["items"] == 8
    with pytest.raises(ValueError, match="a number draws scenes of the toy data set, but the configuration has no section world"):
        flow.evaluate_editor.items.identity(flow)


@pytest.mark.parametrize("wrong", [{"items": 1}, {"items": {"name": "folder"}}, {"judge": "human"}])
def test_unknown_items_and_judges_are_refused(wrong: dict) -> None:
    with pytest.raises(ValueError, match="evaluate_editor"):
        FlowConfig.model_validate({"name": "x", "evaluate_editor": wrong})


def test_photographs_are_judged_by_an_open_model_unless_another_is_named() -> None:
    flow = FlowConfig.model_validate({"name": "x", "evaluate_editor": {"items": {"name": "gedit-bench", "path": "none"}}})
    assert flow.evaluate_editor is not None and isinstance(flow.evaluate_editor.judge, EndpointJudge)
    assert flow.evaluate_editor.judge.label == OFFICIAL_BACKBONE
    assert FlowConfig.model_validate(flow.model_dump(mode="json")) == flow
    with pytest.raises(ValueError, match="two judges are the same"):
        FlowConfig.model_validate({"name": "x", "evaluate_editor": {"items": 8, "further_judges": ["world"]}})
    with pytest.raises(ValueError, match="the judge world compares with the exact edit, which these items do not have"):
        FlowConfig.model_validate({"name": "x", "evaluate_editor": {"items": {"name": "gedit-bench", "path": "none"}, "judge": "world"}})


def test_systems_are_checked_before_anything_is_edited(tmp_path: Path) -> None:
    def names(**settings: object) -> list[str]:
        chosen = {"items": 8, "reference_arm": COPY, **settings}
        flow = FlowConfig.model_validate({"name": "x", "world": {}, "evaluate_editor": chosen})
        assert flow.evaluate_editor is not None
        return [system.name for system in systems(flow, flow.evaluate_editor, (), tmp_path)]

    assert names(editors=[{"editor": "world/quill", "name": "quill"}]) == [COPY, EXACT, "quill"]
    assert names(edits=[{"name": "theirs", "path": str(tmp_path)}]) == [COPY, EXACT, "theirs"]
    for settings, message in [
        ({}, "there is nothing to compare"),
        ({"editors": [{"editor": "world/none"}]}, r"evaluate_editor\.editors\.0: there is no editor 'world/none'"),
        (
            {"editors": [{"editor": "world/quill", "settings": {"x": 1}}]},
            r"editors\.0\.settings\.x: .*the settings of world/quill are: none",
        ),
        ({"editors": [{"editor": "trained", "settings": {"path": "none"}}]}, "there is no directory '.*none'"),
        ({"editors": [{"editor": "world/quill"}], "edits": [{"name": "exact-edit", "path": str(tmp_path)}]}, "2 systems are called"),
        ({"edits": [{"name": "theirs", "path": "none"}]}, r"edits\.0\.path: there is no folder none"),
        ({"editors": [{"editor": "world/quill"}], "reference_arm": "full"}, "there is no system 'full'; there are world/quill"),
    ]:
        with pytest.raises(ValueError, match=message):
            names(**settings)
    flow = FlowConfig.model_validate({"name": "x", "world": {}, "evaluate_editor": {"items": 8}})
    assert flow.evaluate_editor is not None
    with pytest.raises(ValueError, match="there is no directory"):
        systems(flow, flow.evaluate_editor, ["full"], tmp_path)
    assert [system.name for system in systems(flow, flow.evaluate_editor, ["base", "full"], None)] == [COPY, EXACT, "base", "full"]


def test_preservation_is_measured_outside_of_what_changed() -> None:
    rng = np.random.default_rng(0)
    source = rng.integers(0, 256, (64, 64, 3)).astype(np.uint8)
    edited, reference = source.copy(), source.copy()
    edited[:16, :16] = reference[:16, :16] = 255 - source[:16, :16]
    found = preservation(source, edited)
    assert found.psnr == 60 and found.ssim == pytest.approx(1, abs=1e-4) and 0.03 < found.changed_share < 0.09
    assert preservation(source, edited, reference).changed_share == pytest.approx(1 / 16, abs=1e-3)
    noisy = np.clip(edited + rng.normal(0, 5, source.shape), 0, 255).round().astype(np.uint8)  # too little to count as change
    worse = preservation(source, noisy)
    assert worse.psnr == pytest.approx(10 * np.log10(255**2 / 24.5), abs=0.5) and worse.ssim is not None and worse.ssim < 0.9999
    everything = preservation(source, 255 - source)
    assert everything.changed_share > 0.9 and everything.psnr is None and everything.ssim is None
    damaged = noisy.copy()
    damaged[40:, 40:] = 0
    assert preservation(source, damaged).psnr == pytest.approx(worse.psnr, abs=0.5)  # counts as change where no exact edit is known,
    assert preservation(source, damaged).changed_share > worse.changed_share  # which the share shows
    with_reference = preservation(source, damaged, reference)
    assert with_reference.psnr is not None and with_reference.psnr < 15


def test_an_editor_of_the_toy_data_set_edits_its_items(tmp_path: Path) -> None:
    """Its edits get the scores of the program that knows the exact ones; seeds are the items', so the same every time."""
    chosen = {"items": 4, "reference_arm": COPY, "editors": [{"editor": "world/quill", "name": "quill"}]}
    flow = FlowConfig.model_validate({"name": "x", "world": {}, "evaluate_editor": chosen})
    assert flow.evaluate_editor is not None
    *_, quill = systems(flow, flow.evaluate_editor, (), tmp_path)
    whole, part = (generation.make_work(flow)(generation.Piece(quill, *span)).tables["benchmark_edits"] for span in ((0, 4), (1, 2)))
    assert whole["error"].to_pylist() == [""] * 4 and whole["edit_id"].to_pylist()[1:3] == part["edit_id"].to_pylist()
    storage.publish_bytes(tmp_path / "edits.parquet", storage.table_bytes(whole))
    judge = flow.evaluate_editor.judge
    verdicts = judging.make_work(flow, judge, tmp_path)(judging.JudgingPiece(str(tmp_path / "edits.parquet"), 0, 4)).tables["verdicts"]
    assert verdicts["status"].to_pylist() == ["ok"] * 4 and sum(verdicts["overall"].to_pylist()) > 4


def test_what_is_missing_is_said_before_any_step_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that is not there costs no training; where the step is done it is not needed."""
    monkeypatch.delenv("NO_KEY", raising=False)
    gedit_copy.write(tmp_path / "gedit", gedit_copy.rows(1, ("en",)))
    (tmp_path / "theirs").mkdir()
    items = {"name": "gedit-bench", "path": str(tmp_path / "gedit")}
    chosen = {"items": items, "reference_arm": "theirs", "edits": [{"name": "theirs", "path": str(tmp_path / "theirs")}]}

    def check(**changed: object) -> None:
        flow = FlowConfig.model_validate({"name": "x", "evaluate_editor": chosen | changed})
        step.check(Context(RunDir(tmp_path / "run"), flow, Cluster(RayConfig())))

    check()
    key = {"name": "endpoint", "key_variable": "NO_KEY"}
    for changed, message in [
        ({"judge": key}, "the environment variable NO_KEY has no API key"),
        ({"judge": {"name": "endpoint"}, "further_judges": [key | {"model": "other"}]}, "the environment variable NO_KEY has no API key"),
        ({"items": items | {"languages": ["cn"]}}, "has no items in cn; it has 11 in en"),
        ({"reference_arm": "full"}, "there is no system 'full'; there are theirs"),
        ({"editors": [{"editor": "none"}]}, "there is no editor 'none'"),
        ({"measures": [{"name": "lpips", "function": "no_lpips:measure"}]}, r"there is no no_lpips:measure \(.*; install its package"),
        ({"measures": [{"name": "pi", "function": "math:pi"}]}, r"measures: pi: math:pi is no function but of type float"),
        ({"measures": [{"name": "reward", "function": "math:dist"}]}, r"measures\.0\.name: reward is a measure of this project"),
        ({"reward": {"model": str(tmp_path / "none")}}, "no reward model at .*none"),
    ]:
        with pytest.raises(ValueError, match=message):
            check(**changed)
    folder = RunDir(tmp_path / "run").step("evaluate-editor")
    folder.publish(folder.begin(settings={}, inputs={}, force=False)[0])
    check(judge=key)
