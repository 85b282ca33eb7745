"""What a run measures reaches a tracker, whatever happens to its trainings."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from tensorboardX.proto.event_pb2 import Event

from pipeline.tracking import TensorBoard, send_new, tracked
from stages.engine.rundir import RunDir


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Values by ``series/name`` of the event files in a folder."""
    found: dict[str, list[tuple[int, float]]] = {}
    for path in sorted(folder.rglob("events.*")):
        data, at = path.read_bytes(), 0
        while at < len(data):
            (size,) = struct.unpack_from("<Q", data, at)  # then 4 bytes of checksum, the event, 4 bytes of checksum
            event = Event.FromString(data[at + 12 : at + 12 + size])
            at += 16 + size
            for value in event.summary.value:
                name = f"{path.parent.relative_to(folder)}/{value.tag}"
                found.setdefault(name, []).append((event.step, round(value.simple_value, 4)))
    return found


def report(path: Path, *reports: dict[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.writelines(json.dumps(one) + "\n" for one in reports)


def publish(run: RunDir, accuracy: float) -> None:
    draft, _ = run.step("evaluate-reward").begin(settings={"accuracy": accuracy}, inputs={}, force=True)
    run.step("evaluate-reward").publish(draft, counts={"in": 4}, results={"test": {"accuracy": accuracy}, "note": "x"})


def test_reports_arrive_once_and_a_series_that_begins_anew_replaces_its_own(tmp_path: Path) -> None:
    run, sent = RunDir(tmp_path / "run"), {}
    reward, arm = run.path / "train-reward" / "metrics.jsonl", run.path / "finetune" / "metrics" / "full.jsonl"
    tracker = TensorBoard(run)
    report(reward, {"step": 10, "loss": 2.0, "phase": "pretraining"}, {"step": 5, "loss": 1.0, "phase": "training", "nan": float("nan")})
    report(arm, {"step": 25, "loss": 0.25}, {"step": 50, "loss": 0.125})
    publish(run, 0.75)
    send_new(run, tracker, sent)
    with reward.open("a") as file:
        file.write('{"step": 10, "loss": 0.5, ')
        file.flush()
        send_new(run, tracker, sent)  # the line is not whole
        file.write('"phase": "training"}\n')
    arm.unlink()
    report(arm, {"step": 25, "loss": 0.3})
    publish(run, 0.5)
    send_new(run, tracker, sent)
    send_new(run, tracker, sent)
    tracker.close()
    assert scalars(run.path / "tracking" / "tensorboard") == {
        "train-reward/pretraining/loss": [(10, 2.0)],
        "train-reward/training/loss": [(5, 1.0), (10, 0.5)],
        "finetune/full/loss": [(25, 0.3)],
        "evaluate-reward/results/counts/in": [(0, 4.0)],
        "evaluate-reward/results/results/test/accuracy": [(0, 0.5)],
    }


def test_what_is_left_is_sent_at_the_end(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run")
    with tracked(run, ["tensorboard"]):
        report(run.path / "finetune" / "metrics" / "full.jsonl", {"step": 25, "loss": 0.25})
    assert scalars(run.path / "tracking" / "tensorboard") == {"finetune/full/loss": [(25, 0.25)]}


def test_a_tracker_that_fails_ends_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunDir(tmp_path / "run")
    run.path.mkdir()
    (run.path / "tracking").write_text("a file where the folder should be")
    report(run.path / "finetune" / "metrics" / "full.jsonl", {"step": 25, "loss": 0.25})
    with tracked(run, ["tensorboard"]):
        pass
    assert capsys.readouterr().err.startswith("--track tensorboard: nothing more is sent: ")


def test_a_package_that_is_missing_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(ValueError, match=r"--track wandb: the package wandb is not installed; install it with: pip install wandb"),
        tracked(RunDir(tmp_path), ["wandb"]),
    ):
        pass
