"""SIGKILL of the driver in both trainings of a tiny loop: the command again ends with the bytes of an undisturbed run, and repeats no step.

A training group costs some 20 seconds of processor time, so what is not killed trains in this process. ``benchmarks/survive_kills.py``
kills drivers with a cluster of their own at random moments, and groups train everywhere.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import ray
import ray.train.torch
import torch
from command import hashes, pipeline
from paths import ROOT

from stages.engine import warm_workers
from stages.engine.cluster import Cluster
from stages.finetune import small
from stages.train_reward import step as train_reward

pytestmark = pytest.mark.slow

TINY = """\
name: tiny
world: {size: 32, kinds: [recolour, remove]}
ray: {dashboard: false, object_store_mb: 100}
generate:
  sources: {dataset: world, train: 24, validation: 12}
  editors:
    - {name: world/quill, seeds: [0, 1]}
    - {name: world/bobbin, seeds: [0, 1]}
  annotate: 4
  unit_sources: 6
  workers: 1
annotate: {simulate: {overlap: 0.3}}
reward:
  pretraining: {steps: 6, batch_size: 8, checkpoint_every: 2}
  caption_items: 16
  training: {steps: 20, groups_per_batch: 4, checkpoint_every: 3}
filter:
  input: {dataset: world-edits, count: 60}
  selections:
    - {name: selected, rule: top, fraction: 0.5}
  unit_rows: 15
  inspect_workers: 1
  workers: 1
  shards: {samples_per_shard: 10}
finetune:
  editor: {codec: {channels: 16}, denoiser: {conditioning: channel, heads: 2, double_blocks: 1, single_blocks: 1}}
  base: {edits: {dataset: world-edits, split: base, count: 40}, training: {steps: 10, batch_size: 8, warmup_steps: 2, checkpoint_every: 3}}
  training: {steps: 8, batch_size: 8, warmup_steps: 2, checkpoint_every: 3}
  arms: [selected]
"""


KILLED_AT = {"train-reward": "checkpoints/*/training/step-????????-*", "finetune": "editors/base/training.json"}
"""Per step: when this file of it is there: a checkpoint of the ranking; the base, on which the arm is being trained."""


@pytest.mark.timeout(1500)
def test_kills_leave_no_trace(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, undisturbed = tmp_path / "tiny.yaml", tmp_path / "undisturbed"
    config.write_text(TINY)
    for module in (train_reward, small):
        monkeypatch.setattr(module, "fit", lambda loop, payloads, **_: [loop(payload) for payload in payloads])
        monkeypatch.setattr(module, "is_rank_zero", lambda: True)
    monkeypatch.setattr(ray.train.torch, "get_device", lambda: torch.device("cpu"))
    pipeline("run", "all", "--config", config, "--run", undisturbed)
    warm_workers.release()  # the other drivers need their CPUs
    address = ray.get_runtime_context().gcs_address
    for step, moment in KILLED_AT.items():
        run = tmp_path / step
        shutil.copytree(undisturbed, run, ignore=shutil.ignore_patterns(step, "report*"))
        published = times(run)
        command = ["run", step, "--config", config, "--run", run]
        with (tmp_path / "log").open("w") as log:
            driver = subprocess.Popen(
                [sys.executable, "-m", "pipeline.cli", *command, "--address", address], cwd=ROOT, stdout=log, stderr=log
            )
            while driver.poll() is None and not any((run / step).glob(moment)):
                time.sleep(0.005)
            driver.kill()
        printed = (tmp_path / "log").read_text()
        assert driver.wait() == -9 and "[transformers]" not in printed, printed[-3000:]
        assert published == times(run)
        pipeline(*command)
        assert published.items() <= times(run).items()
        assert hashes(run) == hashes(undisturbed)


def times(run: Path) -> dict[str, int]:
    """When each finished step was published."""
    return {path.parent.name: path.stat().st_mtime_ns for path in run.glob("*/index.json")}
