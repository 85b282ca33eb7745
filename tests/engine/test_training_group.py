"""Training loops in a Ray Train worker group: a dead worker is restarted and ends with the same bytes; a mistake arrives as itself."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from broken_work import mistaken, together
from safetensors.torch import save_file
from torch import nn

from finetune.config import BASE_TRAINING
from reward.trainer.config import LoopConfig
from reward.trainer.loop import LossTerms, optimise
from stages.engine import storage, training_group, warm_workers
from stages.engine.cluster import Cluster
from stages.engine.metrics_file import MetricsFile, read_metrics
from stages.engine.run_units import run_units
from stages.engine.rundir import RunDir
from stages.engine.training_group import (
    Training,
    checkpoint_lock,
    fit,
    is_rank_zero,
    is_trained,
    publish_trained,
    seeded,
    training_progress,
)
from stages.engine.units import Unit

pytestmark = pytest.mark.slow


def step_number(module: nn.Module, step: int) -> LossTerms:
    loss = module(torch.full((1, 2), 1.0 + step)).square().sum()
    return loss, {"loss": loss}


def train_layer(folder: Path, on_metrics: Callable[[dict[str, Any]], None]) -> None:
    """A layer, trained in this process by the loop of all trainings."""
    torch.manual_seed(0)
    layer = nn.Linear(2, 1)
    optimise(
        module=layer, parameter_groups=[{"params": list(layer.parameters()), "lr": 0.1}],
        config=LoopConfig(checkpoint_every=2, ema_decay=0.5), steps=6, warmup_steps=1, objective=step_number, task="numbers",
        checkpoint_dir=folder / "checkpoints", report_every=1, on_metrics=on_metrics,
    )  # fmt: skip
    publish_trained(folder / "layer", "key", lambda target: save_file(layer.state_dict(), target / "weights.safetensors"))


def dying(payload: dict[str, Any]) -> None:
    """Train it in a worker, whose process is gone at the first report after a checkpoint, once."""
    folder = Path(payload["folder"])

    def report(metrics: dict[str, Any]) -> None:
        metrics_file.append(metrics)
        if metrics["step"] == 5 and not (folder / "died").exists():
            (folder / "died").touch()
            os._exit(1)

    with checkpoint_lock(folder / "checkpoints", rank_zero=is_rank_zero()):
        metrics_file = MetricsFile(folder / "metrics.jsonl", write=is_rank_zero())
        train_layer(folder, report)


def test_a_dead_worker_is_restarted_and_ends_the_same(cluster: Cluster, tmp_path: Path) -> None:
    disturbed, undisturbed = tmp_path / "disturbed", tmp_path / "undisturbed"
    for folder in (disturbed, undisturbed):
        folder.mkdir()
    fit(dying, [{"folder": str(disturbed)}], cluster=cluster, scratch=disturbed, workers=1, setting="x")
    assert (disturbed / "died").exists()
    metrics = MetricsFile(undisturbed / "metrics.jsonl", write=True)
    train_layer(undisturbed, metrics.append)
    assert storage.tree_hashes(disturbed / "layer") == storage.tree_hashes(undisturbed / "layer")
    assert (disturbed / "metrics.jsonl").read_bytes() == (undisturbed / "metrics.jsonl").read_bytes()
    assert is_trained(disturbed / "layer", "key") and not is_trained(disturbed / "layer", "other")
    reports = read_metrics(disturbed / "metrics.jsonl")
    assert [report["step"] for report in reports] == [1, 2, 3, 4, 5, 6]


def test_a_mistake_arrives_as_one_sentence_also_where_the_workers_before_hold_all_cpus(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "processes").mkdir()
    folder = RunDir(tmp_path / "run").step("step")
    folder.begin(settings={}, inputs={}, force=False)
    units = [Unit(str(number), number, 0) for number in range(2 * cluster.cpus)]  # an actor has two units at a time
    run_units(folder, units, lambda: partial(together, tmp_path / "processes"), cluster=cluster, workers=cluster.cpus)
    with pytest.raises(ValueError, match=r"^a batch of 1 cannot be shared by 2 workers; "):
        fit(mistaken, [{"folder": str(tmp_path / name)} for name in "ab"], cluster=cluster, scratch=tmp_path, workers=1, setting="x")
    attempts = [path.read_text() for path in tmp_path.glob("*/attempts")]
    assert attempts and set(attempts) == {"one\n"}  # no restart; the second group may be stopped before it begins


def test_no_idle_worker_stays_beside_a_training_on_gpus(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker with a GPU needs a CPU of its own machine, however many are free elsewhere."""
    released = []
    monkeypatch.setattr(training_group, "_run_group", lambda *_, **__: None)
    monkeypatch.setattr(warm_workers, "release", lambda **how: released.append(how["unless_free"]))
    monkeypatch.setattr(Cluster, "need", lambda *_, **__: None)
    fit(mistaken, [{}], cluster=cluster, scratch=tmp_path, workers=1, setting="x")
    monkeypatch.setattr(Cluster, "gpus", 1)
    fit(mistaken, [{}], cluster=cluster, scratch=tmp_path, workers=1, setting="x")
    assert released == [1, math.inf]


def test_more_workers_than_the_cluster_has_cpus_are_refused(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^reward.workers asks for 10 with 1 CPU each, and there is room for 4: the cluster has 4 CPUs"):
        fit(mistaken, [{}, {}], cluster=cluster, scratch=tmp_path, workers=5, setting="reward.workers")
    assert cluster.room(num_cpus=1.5, num_gpus=0) == 2 and cluster.room(num_cpus=1, num_gpus=1) == 0


def test_metrics_that_are_being_written_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 10, "phase": "pretraining"}\n{"step": 4, "phase": "training"}\n{"step": 5, "pha')
    assert [report["step"] for report in read_metrics(path)] == [10, 4]
    assert Training("x", path, 10, "pretraining").state() == (10, "") and Training("x", path, 9).state() == (4, "")
    assert Training("x", tmp_path / "absent.jsonl", 9).state() is None


def test_each_phase_has_its_own_lines_in_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "metrics.jsonl"
    phases = [Training("warm-up", path, 10, "pretraining"), Training("ranking", path, 4), Training("never", path, 0)]
    with training_progress([*phases, Training("not begun", path, 3, "other")]):
        path.write_text('{"step": 10, "phase": "pretraining"}\n{"step": 3, "loss": 0.25, "phase": "training"}\n')
    printed = capsys.readouterr().err
    assert "\r" not in printed
    found = re.findall(r"(.+): (\d+/\d+) steps, .* left(.*)", printed)
    assert found == [("warm-up", "0/10", ""), ("warm-up", "10/10", ""), ("ranking", "0/4", ""), ("ranking", "3/4", ", loss 0.250")]


def test_seeds_are_counted_from_the_runs_seed() -> None:
    assert seeded(BASE_TRAINING.model_copy(update={"seed": 5}), 2).seed == 7
