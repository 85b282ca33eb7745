"""SIGKILL of the driver in both trainings of a tiny whole loop: reruns end with the bytes of an undisturbed run, and repeat no step.

A training group costs some 20 seconds of processor time, so the run that is not disturbed, and the last one of the other, train in this
process. ``benchmarks/survive_kills.py`` kills drivers with a cluster of their own at random moments, and groups train everywhere.
"""

from __future__ import annotations

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
evaluate_reward: {bootstrap: 100, unit_sources: 4, workers: 1}
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
evaluate_editor: {reference_arm: base, items: 8, bootstrap: 100, workers: 1}
"""


KILLED_AT = ("train-reward/checkpoints/*/training/step-????????-*", "finetune/editors/base/training.json")
"""When these files are there: a checkpoint of the ranking; the base, on which the arm is being trained."""


@pytest.mark.timeout(1500)
def test_kills_leave_no_trace(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, undisturbed, run = tmp_path / "tiny.yaml", tmp_path / "undisturbed", tmp_path / "killed"
    config.write_text(TINY)
    for module in (train_reward, small):
        monkeypatch.setattr(module, "fit", lambda loop, payloads, **_: [loop(payload) for payload in payloads])
        monkeypatch.setattr(module, "is_rank_zero", lambda: True)
    monkeypatch.setattr(ray.train.torch, "get_device", lambda: torch.device("cpu"))
    pipeline("run", "all", "--config", config, "--run", undisturbed)
    warm_workers.release()  # the other drivers need their CPUs
    address = ray.get_runtime_context().gcs_address
    command = [sys.executable, "-m", "pipeline.cli", "run", "all", "--config", config, "--run", run, "--address", address]
    for moment in KILLED_AT:
        published = times(run)
        with (tmp_path / "log").open("w") as log, subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log) as driver:
            while driver.poll() is None and not any(run.glob(moment)):
                time.sleep(0.005)
            driver.kill()
        assert driver.returncode == -9, (tmp_path / "log").read_text()[-3000:]
        assert published.items() <= times(run).items()
    published = times(run)
    assert {"generate", "annotate", "preferences", "train-reward", "evaluate-reward", "filter"} <= published.keys()
    pipeline("run", "all", "--config", config, "--run", run)
    assert published.items() <= times(run).items()
    assert hashes(run) == hashes(undisturbed)


def times(run: Path) -> dict[str, int]:
    """When each finished step was published."""
    return {path.parent.name: path.stat().st_mtime_ns for path in run.glob("*/index.json")}
