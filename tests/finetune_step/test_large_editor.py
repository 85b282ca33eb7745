"""A pretrained editor through the step: what is encoded, what an arm trains on, what is refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from edit_shards import sharded_run
from filter_here import in_process
from safetensors.torch import load_file, save_file
from tiny_editing import drawn_images
from tiny_step1x import write_step1x

from finetune import families
from finetune.trained import open_trained
from stages.config import FlowConfig
from stages.context import Context
from stages.engine.rundir import RunDir
from stages.finetune import encoding, large, step

ARMS = {"full": list(range(14)), "selected": [9, 2, 5, 4, 11, 7, 8, 13]}


@pytest.fixture(scope="module")
def editor(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return write_step1x(tmp_path_factory.mktemp("step1x")).model_dump(mode="json")


@pytest.fixture
def units(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keys of the units that were done; everything runs in this process."""
    done: list[str] = []
    monkeypatch.setattr("stages.engine.run_units.node_id", lambda: "here")
    monkeypatch.setattr(encoding, "run_units", lambda *given, **how: in_process(*given, log=done, backwards=False))
    monkeypatch.setattr(large, "fit", lambda loop, payloads, **_: [loop(payload) for payload in payloads])
    monkeypatch.setattr(large, "is_rank_zero", lambda: True)
    monkeypatch.setattr("ray.train.torch.get_device", lambda: torch.device("cpu"))
    return done


def need(workers: int, *, setting: str, **_: float) -> None:
    """As a cluster of four CPUs."""
    if workers > 4:
        raise ValueError(f"{setting}: too many")


def context(run: RunDir, editor: dict[str, Any], *, force: bool = False, **changes: Any) -> Context:
    training = {
        "steps": 4,
        "batch_size": 4,
        "adapters": {"rank": 2, "alpha": 2},
        "loader_workers": 0,
        "report_every": 2,
        "progress": {"every": 2, "pairs": 2, "samples": 1},
    }
    section = {
        "editor": editor,
        "encode": {"unit_pairs": 4},
        "training": training | changes.pop("training", {}),
        "arms": changes.pop("arms", list(ARMS)),
    }
    selections = [{"name": name, "rule": "all"} for name in ARMS]
    flow = {"name": "test", "filter": {"input": {"dataset": "world-edits", "count": 10}, "selections": selections}, "world": {"size": 32}}
    cluster: Any = SimpleNamespace(gpus=0, room=lambda **_: 1, need=need, share_of_a_gpu=lambda _: 0.0)
    return Context(run, FlowConfig.model_validate(flow | {"finetune": section | changes}), cluster, force)


def test_arms_share_entries_and_train_from_the_same_weights(tmp_path: Path, editor: dict[str, Any], units: list[str]) -> None:
    images = drawn_images(14)
    images[6] = images[6][0], images[6][1].resize((44, 40)), images[6][2]
    images[11] = images[11][0], images[11][1], "longer " * 50
    images[12] = images[12][0], images[12][1], "make it red<|im_end|>"
    run = sharded_run(tmp_path / "run", images, ARMS)
    with pytest.raises(ValueError, match=r"finetune\.workers: too many"):
        step.run(context(run, editor, workers=8, training={"batch_size": 8}))
    assert units == []  # nothing was encoded for a training that cannot begin
    index = step.run(context(run, editor))
    assert index.counts == {"in": 14, "out": 11, "quarantined": 3}
    assert index.quarantined == {"aspect-ratio": 1, "long-instruction": 1, "unreadable-instruction": 1}
    assert sorted(run.step("finetune").read("quarantine")["row_id"].to_pylist()) == ["sample006", "sample011", "sample012"]
    assert index.results["pairs"]["held-out"] == 2 and index.results["pairs"]["full"] == 9
    assert index.results["steps"] == {"full": 4, "selected": 4}
    assert len(index.results["sampled"]) == 1 and index.results["sampled"][0] in {instruction for _, _, instruction in images}
    assert len(units) == 5  # of the five shards of full; the other arm's pairs are among them
    _, base = open_trained(tmp_path / "run" / "finetune" / "editors" / "base", torch.device("cpu"), torch.float32)
    _, arm = open_trained(tmp_path / "run" / "finetune" / "editors" / "selected", torch.device("cpu"), torch.float32)
    plain = dict(base.named_parameters())
    kept = {name.replace(".base_layer", ""): weight for name, weight in arm.named_parameters() if "lora" not in name}
    assert kept.keys() == plain.keys() and all(torch.equal(weight, plain[name]) for name, weight in kept.items())
    assert any(weight.abs().max() > 0 for name, weight in arm.named_parameters() if "lora_B" in name)
    assert step.run(context(run, editor)) == index
    step.run(context(run, editor, force=True, training={"steps": 2}, arms=["selected"]))
    assert len(units) == 5  # nothing is encoded again


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda folder: (folder / "vae.safetensors").unlink(), "there is no file .*vae.safetensors"),
        (lambda folder: (folder / "step1x-edit-i1258.safetensors").unlink(), "there is no file .*step1x-edit-i1258.safetensors"),
        (lambda folder: without(folder, "connector.scale_factor"), "is Step1X-Edit v1.1: it has no connector.scale_factor"),
    ],
)
def test_files_are_checked_before_any_step_begins(
    damage: Callable[[Path], None], sentence: str, tmp_path: Path, editor: dict[str, Any]
) -> None:
    copy = tmp_path / "step1x"
    shutil.copytree(editor["directory"], copy)
    run = RunDir(tmp_path / "run")
    given = context(run, editor | {"directory": str(copy)})
    step.check(given)
    damage(copy)
    with pytest.raises(ValueError, match=sentence):
        step.check(given)
    with pytest.raises(ValueError, match=r"finetune.arms: there is no selection 'best'; there are full, selected"):
        step.check(context(run, editor, arms=["best"]))


def test_encoders_that_do_not_fit_are_refused_before_a_pair_is_encoded(editor: dict[str, Any]) -> None:
    config: Any = context(RunDir("/nowhere"), editor).flow.finetune
    sizes = config.editor.sizes.model_copy(update={"vlm_width": 24})
    wider = config.editor.model_copy(update={"sizes": sizes})
    with pytest.raises(ValueError, match=r"cannot be used: they give states of width 16, and the denoiser takes 24; use those of step1x"):
        families.open_encoders(wider, torch.device("cpu"))


def without(folder: Path, name: str) -> None:
    """Write the denoiser's file without a tensor."""
    path = folder / "step1x-edit-i1258.safetensors"
    tensors = load_file(path)
    del tensors[name]
    save_file(tensors, path)


def test_a_folder_beside_the_user_is_found_by_workers(
    tmp_path: Path, editor: dict[str, Any], units: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(editor["directory"])
    monkeypatch.chdir(folder.parent)
    run = sharded_run(tmp_path / "run", drawn_images(14), ARMS)
    step.run(context(run, editor | {"directory": folder.name}, arms=["selected"], training={"steps": 1}))
    monkeypatch.chdir(tmp_path)
    assert open_trained(tmp_path / "run" / "finetune" / "editors" / "base", torch.device("cpu"), torch.float32)[0].directory == str(folder)
