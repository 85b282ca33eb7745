"""Editors that finetune published from a pretrained one, as systems of the benchmark."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import gedit_copy
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_step1x import write_step1x
from torch import nn

from finetune import families, sampling, trained
from finetune.estimate import bytes_per_source
from finetune.library_editors.sizes import at_area
from finetune.step1x.config import Step1XConfig
from finetune.step1x.encoders import Step1XEncoders
from finetune.training.config import LargeTrainingConfig
from finetune.training.train import ready_to_learn
from reward.trainer.config import AdapterConfig
from stages.config import FlowConfig
from stages.context import Context
from stages.editors.fine_tuned import canvas_rule
from stages.engine.rundir import RunDir
from stages.engine.units import Work
from stages.evaluate_editor import generation, step
from stages.evaluate_editor.generation import Piece
from stages.evaluate_editor.room import check_encodings
from stages.evaluate_editor.systems import System, systems
from stages.finetune.config import LargeFinetuneConfig

CPU = torch.device("cpu")
KINDS = {"lora": AdapterConfig(rank=2, alpha=2), "other": AdapterConfig(rank=2, alpha=2), "whole": None}
"""Arms beside the base: two with adapters, one that learnt in full."""


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that finetune publishes: the base and all kinds of arms."""
    folder = tmp_path_factory.mktemp("published")
    (folder / "step1x").mkdir()
    config, editors = write_step1x(folder / "step1x"), folder / "editors"
    base = families.model_identity(config)
    trained.save_base(editors / "base", config, base)
    for number, (name, adapters) in enumerate(KINDS.items()):
        training = LargeTrainingConfig(adapters=adapters, precision="fp32")
        model = ready(config, training)
        with torch.no_grad():
            for weight in model.parameters():
                weight += 0.05 * (1 + number) * weight.requires_grad
        trained.save_trained(editors / name, config, base, training, model)
    return folder


def ready(config: Step1XConfig, training: LargeTrainingConfig) -> nn.Module:
    model = families.open_model(config, CPU, torch.float32)
    ready_to_learn(model, training, CPU)
    return model


def flow_of(folder: Path, tmp_path: Path) -> FlowConfig:
    gedit_copy.write(tmp_path / "gedit", gedit_copy.rows(languages=("en",)))
    arms = [{"editor": "trained", "name": name, "settings": {"path": str(folder / "editors" / name)}} for name in ("base", *KINDS)]
    section = {
        "items": {"name": "gedit-bench", "path": str(tmp_path / "gedit")},
        "judge": {"name": "endpoint", "base_url": "http://localhost:1/v1", "model": "none", "key_variable": None},
        "editors": arms,
        "reference_arm": "base",
    }
    return FlowConfig.model_validate({"name": "x", "evaluate_editor": section})


def compared(flow: FlowConfig, encodings: Path | None = None) -> list[System]:
    assert flow.evaluate_editor is not None
    return systems(flow, flow.evaluate_editor, (), None, encodings)[1:]


def edits_of(work: Work, system: System, first: int = 0, count: int = 2) -> np.ndarray:
    rows = work(Piece(system, first, count)).tables["benchmark_edits"].to_pylist()
    assert [row["error"] for row in rows] == [""] * count
    return np.stack([cast(np.ndarray, generation.image_of(row)) for row in rows])


def test_arms_load_and_run_the_frozen_half_once(published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the trained half of the base; an edit is that of an editor that is opened for itself alone."""
    calls: Counter[str] = Counter()

    def counted(owner: Any, name: str) -> None:
        function = getattr(owner, name)

        def count(*given: Any) -> Any:
            calls[name] += 1
            return function(*given)

        monkeypatch.setattr(owner, name, count)

    flow = flow_of(published, tmp_path)
    alone = {system.name: edits_of(generation.make_work(flow), system) for system in compared(flow)}
    assert {edits.shape for edits in alone.values()} == {(2, 32, 48, 3)}
    assert len({edits.tobytes() for edits in alone.values()}) == len(KINDS) + 1
    for owner, name in ((families, "open_encoders"), (families, "open_model"), (sampling, "encode_source")):
        counted(owner, name)
    work, encodings = generation.make_work(flow), tmp_path / "encodings"
    for system in (order := compared(flow, encodings)):
        assert np.array_equal(edits_of(work, system), alone[system.name])
    assert calls == {"open_encoders": 1, "open_model": 2, "encode_source": 2}
    assert np.array_equal(edits_of(work, order[1]), alone["lora"])  # from weights that learnt in full back to adapters
    damaged = sorted(encodings.iterdir())[0]
    estimate = bytes_per_source(trained.read_config(published / "editors" / "base"))
    assert 0.5 < damaged.stat().st_size / estimate < 2  # of conditions in float32, which released encoders have in bf16
    damaged.write_bytes(damaged.read_bytes()[:-1])
    assert np.array_equal(edits_of(generation.make_work(flow), order[0]), alone["base"])
    assert calls == {"open_encoders": 2, "open_model": 4, "encode_source": 3}  # another process; what was damaged is made again
    single = edits_of(work, order[1], 1, 1)[0].astype(int)
    assert np.abs(single - alone["lora"][1]).max() <= 1  # an edit does not depend on its batch, up to rounding


def test_an_instruction_that_is_cut_is_counted(published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GEdit-Bench's items stay what they are: the released model cuts them, too."""
    flow = flow_of(published, tmp_path)
    _, system = systems(flow, cast(Any, flow.evaluate_editor), (), None)[:2]
    done = generation.make_work(flow)(Piece(system, 0, 2))
    assert done.figures == {"cut": 1.0}  # the tiny editor reads 52 tokens
    unread = Step1XEncoders.unread
    monkeypatch.setattr(Step1XEncoders, "unread", lambda self, source, words: unread(self, source, words + " longer" * 50))
    done = generation.make_work(flow)(Piece(system, 0, 2))
    assert done.figures == {"cut": 2.0} and done.tables["benchmark_edits"]["error"].to_pylist() == ["", ""]
    monkeypatch.setattr(Step1XEncoders, "unread", lambda *_: "")
    assert generation.make_work(flow)(Piece(system, 0, 2)).figures == {}
    records = [SimpleNamespace(figures=figures) for figures in ({}, {}, {"cut": 1.0}, {"cut": 2.0})]
    others = [System("copy", "copy", ""), system]
    assert step._cut_instructions(others, cast(Any, SimpleNamespace(records=records))) == [
        f"{system.name}: 3 instructions were cut at the length that the editor reads."
    ]


def test_room_for_encoded_sources_is_asked_for_before_any_edit(published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And before the arms are trained, where the same run trains them."""
    flow, run, nothing = flow_of(published, tmp_path), RunDir(tmp_path / "run"), cast(Any, None)
    editor = trained.read_config(published / "editors" / "base")
    monkeypatch.setattr("stages.engine.disk.shutil.disk_usage", lambda _: SimpleNamespace(free=22 * bytes_per_source(editor) - 1))
    sentence = r"encoded sources of 22 benchmark items take about 0\.\d GB, and the disk of \S+/encodings has 0\.\d GB"
    with pytest.raises(ValueError, match=sentence):
        step.run(Context(run, flow, nothing))
    kept = run.step("evaluate-editor").path / "encodings" / "one.bin"
    kept.parent.mkdir()
    kept.write_bytes(b"1")
    check_encodings(kept.parent, flow, cast(Any, flow.evaluate_editor))
    training = {"editor": editor.model_dump(), "arms": ["a"], "training": {"batch_size": 1}}
    section = cast(Any, flow.evaluate_editor).model_copy(update={"editors": (), "reference_arm": "a"})
    with_training = flow.model_copy(update={"finetune": LargeFinetuneConfig.model_validate(training), "evaluate_editor": section})
    with pytest.raises(ValueError, match=sentence):
        step.check(Context(RunDir(tmp_path / "other"), with_training, nothing))


def test_an_arm_that_lacks_what_learnt_is_refused(published: Path, tmp_path: Path) -> None:
    """Its adapters would be random."""
    arm = shutil.copytree(published / "editors" / "lora", tmp_path / "arm")
    learnt = load_file(arm / "learnt.safetensors")
    lost, _ = learnt.popitem()
    save_file(learnt, arm / "learnt.safetensors")
    with pytest.raises(ValueError, match=rf"{lost} is None, and the training of .*editor\.json has \(.*\(1 weights differ\)"):
        trained.open_trained(arm, CPU, torch.float32)


def test_identity_is_of_the_weights_wherever_they_lie(published: Path, tmp_path: Path) -> None:
    keys = {system.name: system.key for system in compared(flow_of(published, tmp_path))}
    assert len({str(key) for key in keys.values()}) == len(KINDS) + 1 and str(published) not in str(keys)
    moved = tmp_path / "moved"
    published.rename(moved)
    record = moved / "editors" / "lora" / "editor.json"
    text = record.read_text()
    try:
        record.write_text(text.replace(str(published), str(moved)))
        assert trained.identity(moved / "editors" / "lora") == keys["lora"][2]
        with pytest.raises(ValueError, match=r"contains no model; expected the folder|is not a readable safetensors file"):
            trained.identity(moved / "editors" / "base")  # its base is gone
    finally:
        record.write_text(text)
        moved.rename(published)


@pytest.mark.parametrize("side", [64, 512, 768, 1024])
@pytest.mark.parametrize("family", ["step1x", "kontext", "qwen"])
def test_the_canvas_is_a_size_that_the_family_keeps(side: int, family: str) -> None:
    encoders: Any = Step1XEncoders.__new__(Step1XEncoders) if family == "step1x" else Rounding(16 if family == "kontext" else 32)
    rule = canvas_rule(encoders, side)
    for width in range(300, 2000, 37):
        for height in (300, 333, 720, 1024, 1999):
            canvas = rule(width, height)
            assert encoders.working_size(*canvas, side) == canvas
    wide, high = rule(4000, 40)
    assert 5 < wide / high < 9 or side == 64


class Rounding:
    """Sizes of the families in diffusers' layout."""

    def __init__(self, multiple: int) -> None:
        self.multiple = multiple

    def working_size(self, width: int, height: int, side: int) -> tuple[int, int]:
        return at_area(width, height, side, self.multiple)
