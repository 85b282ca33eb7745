"""Checkpoints: loading restores what was saved; damaged, incomplete and replaced checkpoints are skipped."""

from __future__ import annotations

import logging
import threading
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reward.trainer import checkpoint_writer, checkpoints
from reward.trainer.checkpoint_writer import CheckpointWriter
from reward.trainer.checkpoints import CONTENTS, load_checkpoint, newest_sound_checkpoint, read_notes


def state(value: float) -> dict:
    return {"module": {"weight": torch.full((3, 4), value)}, "optimizer": {"groups": [{"lr": value, "step": torch.tensor(value)}]}}


def save_checkpoint(directory: Path, step: int, state: dict[str, Any], *, notes: dict[str, Any] | None = None, keep: int = 2) -> None:
    with CheckpointWriter(directory, keep=keep, sharded=False) as writer:
        writer.save(step, state, notes or {})
        writer.wait()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Nothing is written before the event is set."""
    opened, save = threading.Event(), checkpoint_writer.dcp.save
    monkeypatch.setattr(checkpoint_writer.dcp, "save", lambda *given, **named: opened.wait(20) and save(*given, **named))
    monkeypatch.setattr(checkpoint_writer, "GRACE_SECONDS", 0.01)
    return opened


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


def test_training_goes_on_while_a_checkpoint_is_written(tmp_path: Path, gate: threading.Event, caplog: pytest.LogCaptureFixture) -> None:
    """It has the values of its step, counts only when it is complete, and the next one is left out while it is written."""
    now, notes = state(1.0), {"history": [1]}
    with CheckpointWriter(tmp_path, keep=2, sharded=False) as writer:
        assert not writer.is_busy()
        writer.save(1, now, notes)
        now["module"]["weight"].fill_(7.0)
        now["optimizer"]["groups"][0]["step"].fill_(7.0)
        notes["history"].append(2)
        assert newest_sound_checkpoint(tmp_path) is None and names(tmp_path) in ([], ["step-00000001"])
        assert writer.is_busy() and "step 1 is still being written when the next checkpoint is due, which is left out" in caplog.text
        gate.set()
        writer.wait()
        assert not writer.is_busy()
    found, loaded = newest_sound_checkpoint(tmp_path), state(0.0)
    assert found is not None and read_notes(found) == {"history": [1]}
    load_checkpoint(found, loaded)
    assert float(loaded["module"]["weight"].sum()) == 12 and float(loaded["optimizer"]["groups"][0]["step"]) == 1


def test_a_writer_finishes_what_it_writes_when_the_training_is_interrupted(tmp_path: Path, gate: threading.Event) -> None:
    with pytest.raises(KeyboardInterrupt), CheckpointWriter(tmp_path, keep=2, sharded=False) as writer:
        writer.save(1, state(1.0), {})
        gate.set()
        raise KeyboardInterrupt
    assert newest_sound_checkpoint(tmp_path) is not None


@pytest.mark.parametrize("ask", [CheckpointWriter.check, CheckpointWriter.wait, lambda writer: writer.save(3, state(3.0), {})])
def test_a_failed_write_is_one_sentence(ask: Callable[[CheckpointWriter], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_checkpoint(tmp_path, 1, state(1.0))

    def full(self: object, data: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint_writer._HashedStream, "write", full)
    with CheckpointWriter(tmp_path, keep=2, sharded=False) as writer:
        writer.save(2, state(2.0), {})
        assert writer._running is not None
        writer._running[1].exception(20)
        with pytest.raises(ValueError, match=r"^the checkpoint of step 2 could not be written to \S+ \(.*No space left on device\)"):
            ask(writer)
    found = newest_sound_checkpoint(tmp_path)
    assert found is not None and found.name.startswith("step-00000001")


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(ValueError, match=r"the checkpoint of step 1 could not be written to \S+file \(.*Not a directory.*\)"):
        save_checkpoint(tmp_path / "file", 1, state(1.0))


def test_a_small_disk_keeps_fewer_but_never_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, step, state(step), keep=5)
    usage = namedtuple("usage", "free")
    size = 4 * (12 + 1)  # bytes of the tensors
    monkeypatch.setattr(checkpoints.shutil, "disk_usage", lambda _: usage(size - len(list(tmp_path.glob("step-00000001-*")))))
    save_checkpoint(tmp_path, 4, state(4.0), keep=5)
    assert names(tmp_path) == ["step-00000002", "step-00000003", "step-00000004"] and "has no room for another checkpoint" in caplog.text
    monkeypatch.setattr(checkpoints.shutil, "disk_usage", lambda _: usage(0))
    save_checkpoint(tmp_path, 5, state(5.0), keep=5)
    assert names(tmp_path) == ["step-00000004", "step-00000005"]


def test_what_a_kill_left_unfinished_makes_room_before_a_checkpoint_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (1, 2):
        save_checkpoint(tmp_path, step, state(step), keep=5)
    (tmp_path / "step-00000009.unfinished").mkdir()
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(checkpoints.shutil, "disk_usage", lambda _: usage(0 if list(tmp_path.glob("*9.unfinished")) else 1000))
    save_checkpoint(tmp_path, 3, state(3.0), keep=5)
    assert names(tmp_path) == ["step-00000001", "step-00000002", "step-00000003"]
