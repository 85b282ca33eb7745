"""Checkpoints: loading restores what was saved; damaged, incomplete and replaced checkpoints are skipped."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reward.trainer.checkpoints import CONTENTS, load_checkpoint, newest_sound_checkpoint, read_notes, save_checkpoint


def state(value: float) -> dict:
    return {"module": {"weight": torch.full((3, 4), value)}, "optimizer": {"groups": [{"lr": value, "step": torch.tensor(value)}]}}


def names(folder: Path) -> list[str]:
    return sorted(path.name[:13] for path in folder.iterdir())


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def test_a_state_comes_back_in_place(tmp_path: Path) -> None:
    notes = {"step": 3, "history": [{"step": 3, "loss": 0.1 + 0.2}]}
    save_checkpoint(tmp_path, 3, state(1.5), notes=notes)
    found = newest_sound_checkpoint(tmp_path)
    assert found is not None and read_notes(found) == notes
    other = state(0.0)
    weight = other["module"]["weight"]
    load_checkpoint(found, other)
    assert other["module"]["weight"] is weight and torch.equal(weight, torch.full((3, 4), 1.5))
    assert other["optimizer"]["groups"][0]["lr"] == 1.5 and float(other["optimizer"]["groups"][0]["step"]) == 1.5


def remove_data(path: Path) -> None:
    (path / "__0_0.distcp").unlink()


def remove_contents(path: Path) -> None:
    (path / CONTENTS).unlink()


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: flip(path / "__0_0.distcp"),
        lambda path: flip(path / ".metadata"),
        lambda path: flip(path / CONTENTS),
        lambda path: (path / CONTENTS).write_text("{}"),
        remove_data,
        remove_contents,
    ],
    ids=["data", "metadata", "contents", "no list", "data missing", "contents missing"],
)
def test_damage_is_found(damage: Callable[[Path], object], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for step in (1, 2):
        save_checkpoint(tmp_path, step, state(step))
    damage(max(tmp_path.iterdir()))
    with caplog.at_level(logging.WARNING):
        found = newest_sound_checkpoint(tmp_path)
    assert found is not None and found.name.startswith("step-00000001") and "step-00000002" in caplog.text and "damaged" in caplog.text
    damage(found)
    assert newest_sound_checkpoint(tmp_path) is None


def test_a_damaged_checkpoint_is_replaced_by_the_same_one(tmp_path: Path) -> None:
    """A run that fell back to step 1 comes to step 2 again."""
    for step in (1, 2):
        save_checkpoint(tmp_path, step, state(step))
    flip(max(tmp_path.iterdir()) / "__0_0.distcp")
    save_checkpoint(tmp_path, 2, state(2.0))
    found = newest_sound_checkpoint(tmp_path)
    assert found is not None and found.name.startswith("step-00000002") and names(tmp_path) == ["step-00000001", "step-00000002"]


def test_what_a_kill_left_unfinished_is_removed(tmp_path: Path) -> None:
    (tmp_path / "step-00000002.unfinished").mkdir(parents=True)
    (tmp_path / "step-00000002.unfinished" / "__0_0.distcp").write_bytes(b"half")
    (tmp_path / "step-00000009.unfinished").mkdir()
    (tmp_path / "other").write_text("not ours")
    assert newest_sound_checkpoint(tmp_path) is None
    save_checkpoint(tmp_path, 2, state(2.0))
    assert names(tmp_path) == ["other", "step-00000002"]


@settings(max_examples=10, deadline=None)
@given(keep=st.integers(1, 4), steps=st.lists(st.integers(1, 20), min_size=1, max_size=6))
def test_the_newest_are_kept(keep: int, steps: list[int], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Steps may go back, as after a damaged checkpoint; then the later checkpoints are not used."""
    folder = tmp_path_factory.mktemp("kept")
    expected: list[int] = []
    for step in steps:
        save_checkpoint(folder, step, state(step), keep=keep)
        expected = [*[other for other in expected if other < step], step][-keep:]
    assert names(folder) == [f"step-{step:08d}" for step in expected]
