"""The optimisation loop by itself: order of samples, learning rate, reports, resume; it knows a module and an objective only."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from reward.trainer import checkpoint_writer, loop
from reward.trainer.checkpoint_writer import CheckpointWriter
from reward.trainer.config import AdapterConfig, LoopConfig
from reward.trainer.loop import LossTerms, Metrics, learning_rate_factor, optimise
from reward.trainer.lora import adapt
from reward.trainer.order import batch_order, epoch_shuffles


@given(st.integers(1, 50), st.integers(1, 20), st.integers(0, 3))
def test_batches_cover_every_sample_once_per_epoch(count: int, batch: int, seed: int) -> None:
    """A batch may be larger than the data."""
    order = batch_order(count, batch, epoch_shuffles(seed))
    steps = -(-3 * count // batch)
    seen = [index for step in range(steps) for index in order(step)][: 3 * count]
    for epoch in range(3):
        assert sorted(seen[epoch * count : (epoch + 1) * count]) == list(range(count))
    again = batch_order(count, batch, epoch_shuffles(seed))  # a resumed run asks for later steps only
    assert again(steps - 1) == order(steps - 1)


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    order = batch_order(10, 10, epoch_shuffles(3))
    assert order(0) != order(1) and order(0) != batch_order(10, 10, epoch_shuffles(4))(0)


def test_the_learning_rate_rises_and_falls() -> None:
    rates = [learning_rate_factor(step, 100, 10, "cosine") for step in range(100)]
    assert rates[:10] == pytest.approx([0.1 * i for i in range(1, 11)]) and rates[9] == rates[10] == 1
    assert all(a > b for a, b in itertools.pairwise(rates[10:])) and 0 < rates[-1] < 1e-3 and rates[55] == pytest.approx(0.5)
    assert [learning_rate_factor(step, 100, 10, "constant") for step in (0, 10, 99)] == pytest.approx([0.1, 1.0, 1.0])


def step_number(module: nn.Module, step: int) -> LossTerms:
    """Reports the step's number, and a loss that moves the weights."""
    value = module(torch.full((1, 2), 1.0 + step)).square().sum()
    return value, {"loss": value, "number": torch.tensor(float(step))}


def run(folder: Path, on_metrics: Callable[[Metrics], None], *, report_means: bool) -> nn.Module:
    torch.manual_seed(0)
    module = nn.Linear(2, 1)
    optimise(
        module=module,
        parameter_groups=[{"params": list(module.parameters()), "lr": 0.1}],
        config=LoopConfig(checkpoint_every=4, schedule="constant", ema_decay=0.5),
        steps=10,
        warmup_steps=0,
        objective=step_number,
        task="numbers",
        checkpoint_dir=folder,
        report_every=3,
        on_metrics=on_metrics,
        report_means=report_means,
    )
    return module


def test_reports_are_of_a_step_or_means_since_the_one_before(tmp_path: Path) -> None:
    for means, expected in ((False, [2, 5, 8, 9]), (True, [1, 4, 7, 9])):
        reports: list[Metrics] = []
        run(tmp_path / str(means), reports.append, report_means=means)
        assert [report["step"] for report in reports] == [3, 6, 9, 10]
        assert [report["number"] for report in reports] == expected


def test_a_run_killed_between_reports_repeats_them_and_ends_identical(tmp_path: Path) -> None:
    """The checkpoint after step 4 lies inside the second report's steps: their means need what it kept."""
    calm: list[Metrics] = []
    whole = run(tmp_path / "calm", calm.append, report_means=True)

    def kill(report: Metrics) -> None:
        if report["step"] == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "killed", kill, report_means=True)
    again: list[Metrics] = []
    resumed = run(tmp_path / "killed", again.append, report_means=True)
    assert again == calm
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), resumed.parameters(), strict=True))


def test_a_step_is_adamw_with_schedule_clipping_and_average(tmp_path: Path) -> None:
    """Against torch's own optimizer, step by step; the module ends with the average, which starts as the first weights."""
    torch.manual_seed(0)
    module, plain = nn.Linear(2, 1), nn.Linear(2, 1)
    plain.load_state_dict(module.state_dict())
    config = LoopConfig(betas=(0.7, 0.8), weight_decay=0.3, clip_norm=0.5, ema_decay=0.75)
    optimise(
        module=module, parameter_groups=[{"params": list(module.parameters()), "lr": 0.1}], config=config, steps=6, warmup_steps=2,
        objective=step_number, task="x", checkpoint_dir=tmp_path, report_every=6, on_metrics=lambda _: None,
    )  # fmt: skip
    optimizer = torch.optim.AdamW(plain.parameters(), betas=(0.7, 0.8), weight_decay=0.3)
    averages = [weight.detach().clone() for weight in plain.parameters()]
    for step in range(6):
        optimizer.param_groups[0]["lr"] = 0.1 * learning_rate_factor(step, 6, 2, "cosine")
        optimizer.zero_grad()
        step_number(plain, step)[0].backward()
        assert nn.utils.clip_grad_norm_(plain.parameters(), 0.5) > 0.5
        optimizer.step()
        averages = [0.75 * average + 0.25 * weight.detach() for average, weight in zip(averages, plain.parameters(), strict=True)]
    for weight, average in zip(module.parameters(), averages, strict=True):
        torch.testing.assert_close(weight.detach(), average)


def test_what_is_dropped_depends_on_seed_step_and_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dropped: list[tuple[bool, ...]] = []

    def objective(module: nn.Module, step: int) -> LossTerms:
        dropped.append(tuple((nn.functional.dropout(torch.ones(64)) == 0).tolist()))
        return step_number(module, step)

    for seed, rank in ((0, 0), (0, 1), (5, 0), (0, 0)):
        monkeypatch.setattr(loop, "rank_and_world", lambda rank=rank: (rank, 1))
        module = nn.Linear(2, 1)
        optimise(
            module=module, parameter_groups=[{"params": list(module.parameters())}], config=LoopConfig(seed=seed), steps=2, warmup_steps=0,
            objective=objective, task="x", checkpoint_dir=tmp_path / f"{len(dropped)}", report_every=2, on_metrics=lambda _: None,
        )  # fmt: skip
    assert len(set(dropped[:6])) == 6 and dropped[6:] == dropped[:2]


@pytest.mark.parametrize("rank, alpha", [(2, 3.0), (4, 4.0)])
def test_an_adapter_adds_alpha_over_rank_of_its_product(rank: int, alpha: float) -> None:
    """Hu et al. 2021, section 4.1: W + alpha / r B A, in training and after the merge."""
    torch.manual_seed(0)
    part = nn.Sequential(nn.Linear(6, 5))
    plain = part[0].weight.detach().clone()
    (adapted,) = adapt([part], AdapterConfig(rank=rank, alpha=alpha, dropout=0.0), seed=1, device=torch.device("cpu"))
    factors = {name: parameter for name, parameter in adapted.named_parameters() if parameter.requires_grad}
    (down,) = (parameter for name, parameter in factors.items() if "lora_A" in name)  # [rank, 6]
    (up,) = (parameter for name, parameter in factors.items() if "lora_B" in name)  # [5, rank]
    assert len(factors) == 2 and not up.any()
    nn.init.normal_(up)
    expected = plain + alpha / rank * up.detach() @ down.detach()
    inputs = torch.randn(3, 6)
    bias = part[0].bias.detach()
    assert torch.allclose(part(inputs), inputs @ expected.T + bias, atol=1e-6)
    merged = adapted.merge_and_unload()
    assert torch.allclose(merged[0].weight, expected, atol=1e-6)


def test_adapters_begin_by_their_seed_alone_and_drop_their_inputs() -> None:
    def adapted(seed: int) -> tuple[nn.Module, torch.Tensor]:
        part = nn.Sequential(nn.Linear(64, 5))
        adapt([part], AdapterConfig(rank=4, alpha=4.0, dropout=0.5), seed=seed, device=torch.device("cpu"))
        factors = dict(part.named_parameters())
        nn.init.ones_(next(factor for name, factor in factors.items() if "lora_B" in name))
        return part, next(factor for name, factor in factors.items() if "lora_A" in name)

    (part, first), (_, again), (_, other) = adapted(1), adapted(1), adapted(2)
    assert torch.equal(first, again) and not torch.equal(first, other)
    inputs = torch.ones(1, 64)
    assert not torch.equal(part.train()(inputs), part(inputs)) and torch.equal(part.eval()(inputs), part(inputs))


def test_what_is_added_up_over_workers_does_not_depend_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of floats depend on their order: with a slow disk the window is added up at the same steps."""
    totals, added = loop._Window.totals, []
    monkeypatch.setattr(loop._Window, "totals", lambda window: added.append(window.steps) or totals(window))
    run(tmp_path / "fast", lambda _: None, report_means=True)
    fast, added[:] = [*added], []
    monkeypatch.setattr(CheckpointWriter, "is_busy", lambda _: True)
    run(tmp_path / "slow", lambda _: None, report_means=True)
    assert added == fast and [path.name[:13] for path in (tmp_path / "slow").iterdir()] == ["step-00000010"]


def test_a_checkpoint_that_cannot_be_written_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one of step 4 fails while training goes on, and ends it before the one of step 8 is due."""
    begun: list[int] = []
    save = CheckpointWriter.save
    monkeypatch.setattr(CheckpointWriter, "save", lambda writer, step, *given: begun.append(step) or save(writer, step, *given))
    monkeypatch.setattr(checkpoint_writer, "publish", lambda *_, **__: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(ValueError, match=r"the checkpoint of step 4 could not be written to .*No space left on device"):
        run(tmp_path, lambda _: time.sleep(0.5), report_means=False)
    assert begun == [4]
