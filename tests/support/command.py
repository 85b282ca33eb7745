"""The command line run in this process (commands that need Ray use the cluster of the session), and a small filter run to try it on."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import numpy as np
from click.testing import CliRunner, Result
from PIL import Image

from pipeline import cli
from stages.engine.rundir import RunDir

CONFIGURATION = """\
name: small
ray: {{dashboard: false, object_store_mb: 100}}
filter:
  input: {{dataset: triplets, path: {base}/mine.jsonl}}
  model: {base}/model
  selections:
    - {{name: best, rule: top, count: 6}}
    - {{name: full, rule: all}}
  shards: {{samples_per_shard: 4}}
  unit_rows: 4
  workers: 1
"""


def pipeline(*arguments: object) -> Result:
    """Run a command that succeeds."""
    result = CliRunner().invoke(cli.main, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result


def refusal(*arguments: object, code: int = 1) -> str:
    """Run a command that a user got wrong: exactly one sentence and no traceback; returns the sentence."""
    result = CliRunner().invoke(cli.main, [str(argument) for argument in arguments])
    assert isinstance(result.exception, SystemExit), repr(result.exception)
    assert result.exit_code == code, result.output
    begin = "error: " if code == 1 else "Error: "
    sentences = [line for line in result.stderr.splitlines() if line.startswith(begin)]
    assert len(sentences) == 1 and "Traceback" not in result.output, result.output
    return sentences[0].removeprefix(begin)


def save_model(path: Path) -> Path:
    """A reward model of the demo's size with random weights."""
    import torch

    from reward import RewardModel, RewardModelConfig

    torch.set_num_threads(1)
    RewardModel.from_config(RewardModelConfig(), ["put a red cat on the seat"]).save(path)
    return path


def save_triplets(folder: Path, count: int = 12, side: int = 64) -> Path:
    """A user's folder: ``mine.jsonl`` and pictures of noise, which no compression makes small."""
    noise = np.random.default_rng(0)
    lines = []
    for number in range(count):
        for role in ("source", "edited"):
            buffer = io.BytesIO()
            Image.fromarray(noise.integers(0, 256, (side, side, 3), np.uint8)).save(buffer, "PNG")
            (folder / f"{number}-{role}.png").write_bytes(buffer.getvalue())
        row = {"source": f"{number}-source.png", "instruction": f"put cat {number} on the seat", "edited": f"{number}-edited.png"}
        lines.append(json.dumps(row) + "\n")
    (folder / "mine.jsonl").write_text("".join(lines))
    return folder / "mine.jsonl"


def prepare(base: Path) -> Path:
    """Triplets, a model and ``small.yaml`` in a new folder; returns the configuration."""
    base.mkdir()
    save_triplets(base)
    save_model(base / "model")
    (base / "small.yaml").write_text(CONFIGURATION.format(base=base))
    return base / "small.yaml"


def finished(temporary: Path) -> Path:
    """``<temporary>/small`` with a finished filter run in ``run``, made once for the whole session; copy what you change."""
    base = temporary / "small"
    if not base.exists():
        pipeline("run", "filter", "--config", prepare(base), "--run", base / "run")
    return base


def copied(base: Path, target: Path) -> Path:
    """A copy of a finished run, with the same modification times."""
    shutil.copytree(base / "run", target)
    return target


def hashes(run: Path) -> dict[str, str]:
    """sha256 by file of what must repeat byte for byte."""
    return RunDir(run).artifact_hashes()
