"""Training over encoded pairs: what it learns, what a kill leaves unchanged, and several workers as one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from paths import ROOT
from tiny_editing import TinyModel, tiny_pairs

from finetune.config import RectifiedFlowConfig, SamplingConfig
from finetune.training.config import LargeTrainingConfig, ProgressConfig
from finetune.training.train import train
from reward.trainer.config import AdapterConfig

FLOW = RectifiedFlowConfig(condition_dropout=0.2)


class Killed(Exception):
    pass


def settings(**changes: Any) -> LargeTrainingConfig:
    values: dict[str, Any] = {
        "steps": 12,
        "batch_size": 4,
        "pairs_per_pass": 2,
        "adapters": AdapterConfig(rank=2, alpha=4),
        "learning_rate": 1e-2,
        "warmup_steps": 2,
        "precision": "fp32",
        "activation_checkpointing": "none",
        "loader_workers": 0,
        "checkpoint_every": 4,
        "report_every": 2,
        "progress": ProgressConfig(every=6, pairs=3, times=(0.25, 0.75), samples=2),
    }
    return LargeTrainingConfig(**(values | changes))


def run(folder: Path, on_metrics: Any = lambda _: None, shown: dict[int, Any] | None = None, **changes: Any) -> TinyModel:
    model = TinyModel()
    train(
        model=model,
        base="tiny 0",
        pairs=tiny_pairs(13),
        held_out=tiny_pairs(3, seed=1),
        flow=FLOW,
        config=settings(**changes),
        checkpoint_dir=folder,
        on_metrics=on_metrics,
        on_samples=lambda step, latents: None if shown is None else shown.setdefault(step, {}).update(latents),
        sampling=SamplingConfig(steps=2, guidance=2),
        device=torch.device("cpu"),
    )
    return model


FULL = {"adapters": None, "parallel": "fsdp", "ema_decay": 0.9}
WORKER = """
import sys, torch
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_large_training import FULL, Killed, run
rank, folder = int(sys.argv[1]), Path({folder!r})
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo", init_method=f"file://{{folder}}/rendezvous", rank=rank, world_size=2)

def kill(report):
    if report["step"] == 10:
        raise Killed

found = {{}}
for name, changes in (
    ("lora", {{}}),
    ("full", FULL),
    ("thrifty", FULL | {{"precision": "bf16", "activation_checkpointing": "full", "pairs_per_pass": 1}}),
):
    reports, again = [], []
    model = run(folder / name, reports.append, **changes)
    found[name] = None if any(weight.is_meta for weight in model.parameters()) else model.state_dict(), reports
    if name != "thrifty":
        try:
            run(folder / f"{{name}}-killed", kill, **changes)
        except Killed:
            pass
        model = run(folder / f"{{name}}-killed", again.append, **changes)
        found[f"{{name}}-killed"] = None if any(weight.is_meta for weight in model.parameters()) else model.state_dict(), again
torch.save(found, folder / f"rank{{rank}}.pt")
torch.distributed.destroy_process_group()
"""


def assert_close(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor], tolerance: float) -> None:
    assert list(a) == list(b)
    assert [name for name in a if not torch.allclose(a[name].float(), b[name].float(), atol=tolerance)] == []


def test_two_workers_train_as_one_and_go_on_after_a_kill(tmp_path: Path) -> None:
    """Adapters on whole weights and all weights in shards; the same bits after a kill, also when one worker goes on for two."""
    code = WORKER.format(tests=str(Path(__file__).parent), folder=str(tmp_path))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")]), "OMP_NUM_THREADS": "1"}
    group = [subprocess.Popen([sys.executable, "-c", code, str(rank)], cwd=ROOT, env=environment) for rank in range(2)]
    alone, reports = {}, {}
    for name, changes in (("lora", {}), ("full", FULL)):
        found: list[dict[str, float]] = []
        alone[name], reports[name] = run(tmp_path / f"one-{name}", found.append, **changes).state_dict(), found
    alone["thrifty"], reports["thrifty"] = alone["full"], reports["full"]
    assert [worker.wait(timeout=300) for worker in group] == [0, 0]
    first, second = (torch.load(tmp_path / f"rank{rank}.pt", weights_only=True) for rank in range(2))
    for name, (weights, found) in first.items():
        assert found == second[name][1]
        assert (second[name][0] is None) == (not name.startswith("lora"))
        kind, loose = name.removesuffix("-killed"), name == "thrifty"
        assert_close(weights, alone[kind], 3e-2 if loose else 1e-3)
        for key in ("loss", "held_out", "held_out/0.25"):
            expected = [report[key] for report in reports[kind] if key in report]
            assert len(expected) == (2 if "held" in key else 6)
            assert [report[key] for report in found if key in report] == pytest.approx(expected, rel=2e-2 if loose else 1e-4)
    for name in ("lora", "full"):
        (calm, found), (killed, again) = first[name], first[f"{name}-killed"]
        assert all(torch.equal(calm[part], killed[part]) for part in calm) and again == found
