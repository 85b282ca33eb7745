"""SIGKILL of the driver in both trainings of a tiny whole loop: reruns end with the bytes of an undisturbed run, and repeat no step.

``benchmarks/survive_kills.py`` kills a driver with its own Ray cluster, at random moments.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
import ray
from command import hashes, pipeline
from paths import ROOT

from reward.trainer.checkpoints import UNFINISHED
from stages.engine import warm_workers
from stages.engine.cluster import Cluster

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


KILLED_AT = ("train-reward/checkpoints/*/training/step-*", "finetune/checkpoints/base-*/step-*")
"""Checkpoints. A driver is killed when one is complete."""


@pytest.mark.timeout(1500)
def test_kills_leave_no_trace(cluster: Cluster, tmp_path: Path) -> None:
    config, undisturbed, run = tmp_path / "tiny.yaml", tmp_path / "undisturbed", tmp_path / "killed"
    config.write_text(TINY)
    pipeline("run", "all", "--config", config, "--run", undisturbed)
    warm_workers.release()  # the other drivers need their CPUs
    address = ray.get_runtime_context().gcs_address
    command = [sys.executable, "-m", "pipeline.cli", "run", "all", "--config", config, "--run", run, "--address", address]
    for checkpoint in KILLED_AT:
        published = times(run)
        with (tmp_path / "log").open("w") as log, subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log) as driver:
            while driver.poll() is None and not any(UNFINISHED not in path.name for path in run.glob(checkpoint)):
                time.sleep(0.005)
            driver.kill()
        assert driver.returncode == -9, (tmp_path / "log").read_text()[-3000:]
        assert published.items() <= times(run).items()
    published = times(run)
    assert published.keys() == {"generate", "annotate", "preferences", "train-reward", "evaluate-reward", "filter"}
    pipeline("run", "all", "--config", config, "--run", run)
    assert published.items() <= times(run).items()
    assert hashes(run) == hashes(undisturbed)


def times(run: Path) -> dict[str, int]:
    """When each finished step was published."""
    return {path.parent.name: path.stat().st_mtime_ns for path in run.glob("*/index.json")}
