"""Which groups, seeds and settings the step hands to the trainings: one wired wrongly would train, too."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray.train.torch
from rated_run import make_run

import reward
from reward.trainer import curves
from stages.annotate import step as annotate
from stages.config import FlowConfig
from stages.engine import steps
from stages.preferences import step as preferences
from stages.preferences.groups import calibrates
from stages.train_reward import step as train_reward

FLOW: dict[str, Any] = {
    "name": "test",
    "seed": 7,
    "world": {"size": 32},
    "reward": {
        "caption_items": 5,
        "pretraining": {"steps": 3, "seed": 10},
        "training": {"steps": 4, "seed": 20, "learning_rate": 3e-4},
        "loss": {"kind": "bradley_terry"},
    },
}


def test_each_phase_gets_its_split_seed_and_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = make_run(tmp_path / "run", groups=40)
    annotate.run(context)
    preferences.run(context)
    model: Any = SimpleNamespace(cpu=lambda: model, save=lambda path, facts: None)
    made: dict[str, Any] = {}
    warm_up: dict[str, Any] = {}
    training: dict[str, Any] = {}
    calibration: list[str] = []

    def from_config(config: Any, words: list[str], *, seed: int, **given: Any) -> Any:
        made.update(config=config, words=words, seed=seed, **given)
        return model

    def pretrain(**given: Any) -> list[Any]:
        warm_up.update(given)
        return []

    def train(**given: Any) -> Any:
        training.update(given)
        return SimpleNamespace(model=model, history=[])

    monkeypatch.setattr(reward.RewardModel, "from_config", from_config)
    monkeypatch.setattr(reward, "pretrain", pretrain)
    monkeypatch.setattr(reward, "train", train)
    monkeypatch.setattr(ray.train.torch, "get_device", lambda: "cpu")
    monkeypatch.setattr(curves, "draw_curves", lambda phases: b"")
    monkeypatch.setattr(train_reward, "is_rank_zero", lambda: True)
    monkeypatch.setattr(train_reward, "_calibrate", lambda _, groups, **more: calibration.extend(group.source_id for group in groups))
    train_reward._loop({"run": str(context.run.path), "key": "key", "flow": FlowConfig.model_validate(FLOW).model_dump(mode="json")})

    rows = context.run.step(steps.PREFERENCES).read("pairs", ["source_id", "split"]).to_pylist()
    of_split = {split: list(dict.fromkeys(row["source_id"] for row in rows if row["split"] == split)) for split in ("train", "validation")}
    assert len(of_split["train"]) > len(of_split["validation"]) > 1
    assert [group.source_id for group in training["groups"]] == of_split["train"]
    assert [group.source_id for group in training["validation"]] == of_split["validation"]
    half = [source_id for source_id in of_split["validation"] if calibrates(source_id)]
    assert 0 < len(half) < len(of_split["validation"]) and calibration == half
    assert (made["seed"], made["device"]) == (7, "cpu") and warm_up["model"] is model and training["model"] is model
    assert (warm_up["config"].seed, warm_up["config"].steps, len(warm_up["examples"])) == (17, 3, 5)
    assert (training["config"].seed, training["config"].steps, training["config"].learning_rate) == (27, 4, 3e-4)
    assert training["loss"].kind == "bradley_terry"
    assert warm_up["checkpoint_dir"] != training["checkpoint_dir"]
    spoken = {group.instruction for group in training["groups"]} | {example.instruction for example in warm_up["examples"]}
    assert set(made["words"]) == spoken and not spoken & {group.instruction for group in training["validation"]}


def test_half_of_the_held_out_groups_calibrate_the_others_test() -> None:
    assert sum(calibrates(f"source {number}") for number in range(2000)) == pytest.approx(1000, abs=100)
