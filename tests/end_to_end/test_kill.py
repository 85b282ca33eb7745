"""SIGKILL of the driver at random moments of a tiny whole loop: reruns end with the bytes of an undisturbed run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

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


@pytest.mark.timeout(1500)
def test_kills_leave_no_trace(tmp_path: Path) -> None:
    config = tmp_path / "tiny.yaml"
    config.write_text(TINY)
    command = [
        sys.executable,
        "benchmarks/survive_kills.py",
        "--config",
        str(config),
        "--kills",
        "2",
        "--seed",
        "1",
        "--runs",
        str(tmp_path / "runs"),
    ]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    logs = "\n".join(path.read_text()[-3000:] for path in (tmp_path / "runs").glob("*.log")) if found.returncode else ""
    assert found.returncode == 0, found.stdout + found.stderr + logs
    assert "2 kills, 0 runs with differences" in found.stdout
