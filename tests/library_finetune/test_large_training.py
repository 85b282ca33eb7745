"""Training over encoded pairs: what it learns, what a kill leaves unchanged, and several workers as one."""

from __future__ import annotations

import multiprocessing
import shutil
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import two_processes
from tiny_editing import CHANNELS, Block, TinyModel, tiny_pairs
from torch.distributed.checkpoint import FileSystemReader

from finetune.config import RectifiedFlowConfig, SamplingConfig
from finetune.training.blocks import prepared_blocks
from finetune.training.config import LargeTrainingConfig, ProgressConfig
from finetune.training.loading import PairLoader
from finetune.training.order import WINDOW, bucketed_order
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
    model, stored = TinyModel(), None
    if changes.pop("unread", False):
        weights = model.state_dict()
        stored = {name: partial(lambda weight, first, last: weight[first:last], weight) for name, weight in weights.items()}
        model = model.to("meta")
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
        stored=stored,
    )
    return model


FULL = {"adapters": None, "parallel": "fsdp", "ema_decay": 0.9}


def kill(report: dict[str, float]) -> None:
    if report["step"] == 10:
        raise Killed


def train_cases(folder: Path) -> dict[str, Any]:
    """What one of two processes does: weights (None where the other one has collected them) and reports by case."""
    found: dict[str, Any] = {}
    for name, changes in (
        ("lora", {}),
        ("full", FULL),
        ("adapted", {"parallel": "fsdp"}),
        ("unread", FULL | {"unread": True}),
        ("thrifty", FULL | {"precision": "bf16", "activation_checkpointing": "full", "pairs_per_pass": 1}),
    ):
        folders = [folder / name]
        if name in ("lora", "full"):
            folders.append(folder / f"{name}-killed")
            with suppress(Killed):
                run(folders[1], kill, **changes)
        for target in folders:
            reports: list[dict[str, float]] = []
            model = run(target, reports.append, **changes)
            found[target.name] = None if any(weight.is_meta for weight in model.parameters()) else model.state_dict(), reports
    return found


def assert_close(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor], tolerance: float) -> None:
    assert list(a) == list(b)
    assert [name for name in a if not torch.allclose(a[name].float(), b[name].float(), atol=tolerance)] == []


@pytest.mark.xdist_group("two workers")
def test_two_workers_train_as_one_and_go_on_after_a_kill(tmp_path: Path) -> None:
    """Adapters on whole weights and all weights in shards; the same bits after a kill, also when one worker goes on for two."""
    joined = two_processes.start(train_cases, tmp_path)
    alone, reports = {}, {}
    for name, changes in (("lora", {}), ("full", FULL)):
        found: list[dict[str, float]] = []
        alone[name], reports[name] = run(tmp_path / f"one-{name}", found.append, **changes).state_dict(), found
    alone["adapted"], reports["adapted"] = alone["lora"], reports["lora"]
    for name in ("unread", "thrifty"):
        alone[name], reports[name] = alone["full"], reports["full"]
    assert joined() == [0, 0]
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
    for name, changes in (("lora", {}), ("full", FULL)):  # one worker takes over from two
        newest = max((tmp_path / name).iterdir())
        shutil.rmtree(newest)
        reports_of_one: list[dict[str, float]] = []
        shown_by_one: dict[int, Any] = {}
        taken_over = run(tmp_path / name, reports_of_one.append, shown_by_one, **changes)
        assert_close(taken_over.state_dict(), alone[name], 1e-3)
        assert [report["loss"] for report in reports_of_one if "loss" in report] == pytest.approx(
            [report["loss"] for report in reports[name] if "loss" in report], rel=1e-4
        )
        assert list(shown_by_one) == [12] and set(shown_by_one[12]) == {0, 1}


def test_a_batch_is_of_one_size_where_it_can_be_and_every_pair_comes_once_per_epoch() -> None:
    bucket_of = np.array([0] * 150 + [1] * 90 + [2])  # the last one has a single pair
    order = bucketed_order(bucket_of, 4, seed=3)
    drawn = [number for step in range(241 * WINDOW) for number in order(step)]  # whole windows and whole epochs
    assert set(np.bincount(drawn)) == {4 * WINDOW}
    mixed = [len(set(bucket_of[order(step)])) > 1 for step in range(7 * WINDOW)]
    assert 0 < sum(mixed) <= 2 * 7
    assert order(100) == bucketed_order(bucket_of, 4, seed=3)(100) != bucketed_order(bucket_of, 4, seed=4)(100)


@pytest.mark.parametrize("loader_workers", [0, 2])
def test_samples_times_and_noise_do_not_depend_on_the_workers(monkeypatch: pytest.MonkeyPatch, loader_workers: int) -> None:
    pairs = tiny_pairs(13)

    def shares(rank: int, world: int, first: int) -> list[Any]:
        monkeypatch.setattr("reward.trainer.workers.rank_and_world", lambda: (rank, world))
        loader = PairLoader(pairs, bucketed_order(pairs.bucket_of, 4, 0), FLOW, lambda rows, columns: 2.0, seed=5, workers=loader_workers)
        with closing(loader):
            return [loader.share(step) for step in range(first, 4)]

    whole = shares(0, 1, 0)
    halves = [[*one, *other] for one, other in zip(shares(0, 2, 1), shares(1, 2, 1), strict=True)]
    for all_of_it, both in zip(whole[1:], halves, strict=True):
        described = [
            sorted((float(pair.draws.time), float(pair.draws.noise.sum()), len(pair.condition["words"])) for pair in batch)
            for batch in (all_of_it, both)
        ]
        assert described[0] == described[1] and len(described[0]) == 4
    assert len({float(pair.draws.time) for batch in whole for pair in batch}) == 4 * 4
    dropped = [pair for batch in shares(0, 1, 0) for pair in batch if bool(pair.draws.dropped)]
    assert dropped and all(len(pair.condition["words"]) == 1 for pair in dropped)


def test_a_training_ends_the_processes_that_read_for_it(tmp_path: Path) -> None:
    """Left over, they are waited for in whatever thread the garbage collector runs."""
    run(tmp_path, steps=2, loader_workers=2)
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("changes", [{"activation_checkpointing": "full"}, {"activation_checkpointing": "selective"}])
def test_what_is_computed_again_gives_the_same_bits(tmp_path: Path, changes: dict[str, Any]) -> None:
    plain, again = (run(tmp_path / name, steps=6, **given) for name, given in (("plain", {}), ("again", changes)))
    assert all(torch.equal(one, other) for one, other in zip(plain.state_dict().values(), again.state_dict().values(), strict=True))
    assert all("forward" not in vars(block) for block in again.blocks)


def test_all_blocks_share_a_compiled_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one for the first size, and one for all sizes after that; without gradients as many."""
    programs: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        programs.append(graph)
        return graph.forward

    monkeypatch.setattr("finetune.training.blocks.torch.compile", partial(torch.compile, backend=backend))
    model = TinyModel()
    model.blocks.extend([Block() for _ in range(10)])
    with prepared_blocks(model, recompute="full", compiled=True):
        for rows, columns in ((4, 4), (4, 6), (5, 5), (6, 8)):
            latent = torch.randn(2, CHANNELS, rows, columns)
            condition = model.collate([{"words": torch.zeros(5, 4)}] * 2)
            model(latent, latent, torch.rand(2), condition).sum().backward()
    assert len(programs) == 2


def test_only_adapters_and_a_connector_that_is_asked_for_learn(tmp_path: Path) -> None:
    before = TinyModel().state_dict()
    for connector in (False, True):
        after = run(tmp_path / str(connector), steps=4, connector=connector).state_dict()
        changed = {name for name in before if not torch.equal(before[name], after.get(name, after.get(_inner(name))))}
        assert changed == ({"reader.weight", "reader.bias"} if connector else set())
    checkpoint = max((tmp_path / "False").iterdir())
    stored = {name for name in FileSystemReader(checkpoint).read_metadata().state_dict_metadata if name.startswith("module.")}
    assert stored and all("lora" in name for name in stored)  # frozen weights are left out


def _inner(name: str) -> str:
    owner, _, leaf = name.rpartition(".")
    return f"{owner}.base_layer.{leaf}"


def test_mistakes_get_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="there are 13 pairs, fewer than batch_size 16"):
        run(tmp_path, batch_size=16)
    with pytest.raises(ValueError, match="adamw8bit does not know sharded weights"):
        settings(optimizer="adamw8bit", parallel="fsdp")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="needs the package bitsandbytes, which is not installed"):
        run(tmp_path / "eight", optimizer="adamw8bit")
    run(tmp_path / "one", steps=2)
    with pytest.raises(ValueError, match="belongs to other settings or data"):
        run(tmp_path / "one", steps=2, seed=1)
    monkeypatch.setattr("finetune.training.train.rank_and_world", lambda: (0, 3))
    with pytest.raises(ValueError, match="a batch of 4 pairs cannot be divided among 3 workers"):
        run(tmp_path / "three")
