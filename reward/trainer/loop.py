"""The optimisation loop of every training: AdamW, schedule, clipping, averaged weights, metrics, exact resume.

The loop knows a module, its parameters and a function that computes a step's loss; the caller provides objective and data. A step's data
and randomness must be functions of (seed, step, rank) alone (`reward.trainer.order`): then a run that is killed anywhere and started again
on the same checkpoint directory ends with the same parameters, bit for bit. Under torch.distributed (initialised by the caller) each worker
computes its terms of the batch's loss, in one pass or several, and gradients are summed; all workers see the same metrics and write their
part of the checkpoints.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from reward.trainer.checkpoint_writer import CheckpointWriter
from reward.trainer.checkpoints import load_checkpoint, newest_sound_checkpoint, read_notes
from reward.trainer.config import LoopConfig
from reward.trainer.ema import WeightAverage
from reward.trainer.optimizer import make_optimizer
from reward.trainer.order import derived_seed
from reward.trainer.sharding import replicated, unsynchronised
from reward.trainer.workers import rank_and_world

Metrics = dict[str, float]
LossTerms = tuple[Tensor, dict[str, Tensor]]
"""One worker's terms of a step's loss (a scalar), and its terms of the metrics (scalars); over all workers and passes they add up."""
Objective = Callable[[nn.Module, int], LossTerms]
"""objective(module, step): this worker's terms. What is too large for one pass goes through `accumulate`."""


def optimise(
    *,
    module: nn.Module,
    parameter_groups: list[dict[str, Any]],
    config: LoopConfig,
    steps: int,
    warmup_steps: int,
    objective: Objective,
    task: str,
    checkpoint_dir: Path,
    report_every: int,
    on_metrics: Callable[[Metrics], None],
    validate: Callable[[], Metrics] | None = None,
    validate_every: int = 1,
    report_means: bool = False,
    unused: bool = False,
    keep_frozen: bool = True,
) -> list[Metrics]:
    """Run to `steps` steps, from the newest sound checkpoint if there is one; returns all metrics since step 0.

    task: what the checkpoints belong to, any text. validate: metrics after every validate_every-th step and after the last. Reported are
    the objective's metrics of every report_every-th step, or with report_means their means since the report before. on_metrics gets every
    report; after a resume those of the finished steps first. With ema_decay, validation sees the averaged weights, and the module ends
    with them. unused: some weights that learn may reach no output. keep_frozen: checkpoints have the weights that do not learn, too. Raises
    ValueError if checkpoint_dir contains another task's checkpoints, for weights that are not float32, when loss or gradient are no longer
    finite, or when a checkpoint cannot be written.
    """
    rank, _ = rank_and_world()
    device = next(module.parameters()).device
    parallel = replicated(module, unused=unused)  # from here on all workers have the same weights
    optimizer = make_optimizer(parameter_groups, config, sharded=isinstance(module, FSDPModule))
    peaks = [group["lr"] for group in optimizer.param_groups]
    learning = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for parameter in learning:
        if parameter.dtype != torch.float32:
            raise ValueError(f"the weights are {parameter.dtype}, training needs torch.float32; load the model in it")
    average = None if config.ema_decay is None else WeightAverage(module, config.ema_decay)
    window = _Window(report_means)
    record = _Record(module, optimizer, average, window, checkpoint_dir, hashlib.sha256(task.encode()).hexdigest(), keep_frozen)
    first, history = record.resume()
    for metrics in history:
        on_metrics(dict(metrics))
    with (
        torch_threads(config.threads),
        torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
        CheckpointWriter(checkpoint_dir, keep=config.keep_checkpoints, sharded=isinstance(module, FSDPModule)) as writer,
    ):
        module.train()
        for step in range(first, steps):
            rate = learning_rate_factor(step, steps, warmup_steps, config.schedule)
            for group, peak in zip(optimizer.param_groups, peaks, strict=True):
                group["lr"] = peak * rate
            torch.manual_seed(derived_seed(config.seed, "dropout", step, rank))
            optimizer.zero_grad()
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=config.precision == "bf16"):
                loss, reported = objective(parallel, step)
            _backward(loss)
            if unused:
                _fill_gradients(learning)
            norm = _clip(learning, config.clip_norm)
            optimizer.step()
            if average is not None:
                average.update()
            window.add(reported)
            done = step + 1
            metrics: Metrics = {}
            if done % report_every == 0 or done == steps:
                metrics = _finite(window.close() | {"gradient_norm": float(norm)}, done) | {"learning_rate": peaks[0] * rate}
            if validate is not None and (done % validate_every == 0 or done == steps):
                with average.in_place() if average is not None else nullcontext():
                    metrics |= validate()
            if metrics:
                metrics = {"step": done} | metrics
                history.append(metrics)
                on_metrics(dict(metrics))
            writer.check()
            if done == steps or done % config.checkpoint_every == 0:
                notes = record.notes(done, history)  # also where none is written: it adds up, and sums must not depend on the disk
                if done == steps or not writer.is_busy():
                    writer.save(done, record.state(), notes)
        writer.wait()
    if average is not None:
        average.swap()
    module.eval()
    return history


def accumulate(module: nn.Module, passes: Sequence[Callable[[], LossTerms]]) -> LossTerms:
    """Terms of several passes, each a function: gradients of all but the last are added up here, those of the last by the caller.

    The loss that is returned is that of the last pass; the metrics are of all. Workers exchange gradients once, with the last pass. At
    least one pass is needed.
    """
    count = len(passes)
    if isinstance(module, FSDPModule):  # in every pass workers gather weights from each other, so all need equally many
        most = torch.tensor(count)  # on the CPU, so that nobody waits for the device
        dist.all_reduce(most, dist.ReduceOp.MAX)
        count = int(most)
    *early, last = passes
    total: dict[str, Tensor] = {}
    with unsynchronised(module):
        for _ in range(count - len(passes)):
            loss, _ = last()
            _backward(loss * 0)
        for run in early:
            loss, reported = run()
            _backward(loss)
            total = {name: value.detach() + total.get(name, 0) for name, value in reported.items()}
    loss, reported = last()
    return loss, {name: value.detach() + total.get(name, 0) for name, value in reported.items()}


def learning_rate_factor(step: int, steps: int, warmup_steps: int, schedule: Literal["cosine", "constant"]) -> float:
    """Factor of the peak rate at a step: a linear warm-up, then constant, or a half cosine to zero after the last step."""
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    if schedule == "constant":
        return 1.0
    return 0.5 * (1 + math.cos(math.pi * (step - warmup_steps) / max(1, steps - warmup_steps)))


@contextmanager
def torch_threads(count: int) -> Generator[None]:
    """Inside, torch computes with this number of CPU threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _backward(loss: Tensor) -> None:
    """Workers average their gradients. The gradient of the sum of all terms is wanted, so each worker's terms are multiplied by the number
    of workers.
    """
    _, world = rank_and_world()
    with torch.autocast(loss.device.type, enabled=False):
        (loss * world).backward()


def _fill_gradients(parameters: Sequence[nn.Parameter]) -> None:
    """Zero gradients where there are none: the optimizer keeps averages of all weights from the first step on, so checkpoints have them."""
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)


def _clip(parameters: Sequence[nn.Parameter], limit: float) -> Tensor:
    """Scale gradients down to a norm; returns the norm that they had."""
    norm = nn.utils.get_total_norm([parameter.grad for parameter in parameters if parameter.grad is not None])
    if isinstance(norm, DTensor):
        norm = norm.full_tensor()
    nn.utils.clip_grads_with_norm_(parameters, limit, norm)
    return norm


def _finite(metrics: Metrics, step: int) -> Metrics:
    for name, value in metrics.items():
        if not math.isfinite(value):
            raise ValueError(f"{name} is {value} at step {step}; lower the learning rate or clip_norm, or check the weights")
    return metrics


class _Window:
    """Metrics between two reports: those of the newest step, or the sums of all steps since the last report."""

    def __init__(self, means: bool) -> None:
        self._means = means
        self.steps = 0
        self.sums: dict[str, Tensor] = {}  # this worker's terms; after `totals` all of them on the first worker, zeros on the others

    def add(self, reported: dict[str, Tensor]) -> None:
        """Take in a step. Nothing is read back from the device, so the next step need not wait for it."""
        kept = self.sums if self._means else {}
        self.steps = self.steps + 1 if self._means else 1
        self.sums = {name: value.detach().double() + kept.get(name, 0) for name, value in reported.items()}

    def totals(self) -> Metrics:
        """Sums over the workers; every worker calls it."""
        if not self.sums:
            return {}
        names, stacked = list(self.sums), torch.stack(list(self.sums.values()))
        rank, world = rank_and_world()
        if world > 1:
            dist.all_reduce(stacked)
            self.sums = dict(zip(names, stacked if rank == 0 else torch.zeros_like(stacked), strict=True))
        return dict(zip(names, stacked.tolist(), strict=True))

    def close(self) -> Metrics:
        """What is to be reported; the next window begins."""
        metrics = {name: total / self.steps for name, total in self.totals().items()}
        self.steps, self.sums = 0, {}
        return metrics


@dataclass
class _Record:
    """What a run is resumed from: weights, optimizer, averages and metrics, in checkpoints of one task."""

    module: nn.Module
    optimizer: torch.optim.Optimizer
    average: WeightAverage | None
    window: _Window
    directory: Path
    task: str
    keep_frozen: bool

    def resume(self) -> tuple[int, list[Metrics]]:
        """Load the newest sound checkpoint. Returns the steps done and their metrics."""
        path = newest_sound_checkpoint(self.directory)
        if path is None:
            return 0, []
        notes = read_notes(path)
        if notes["task"] != self.task:
            raise ValueError(f"{path} belongs to other settings or data; use an empty checkpoint directory")
        state = self.state()
        load_checkpoint(path, state)
        set_state_dict(
            self.module, self.optimizer, model_state_dict=state["module"], optim_state_dict=state["optimizer"], options=self._options()
        )
        self.window.steps, totals = notes["window"]
        if rank_and_world()[0] == 0:
            device = next(self.module.parameters()).device
            self.window.sums = {name: torch.tensor(total, dtype=torch.float64, device=device) for name, total in totals.items()}
        return notes["step"], notes["history"]

    def notes(self, done: int, history: list[Metrics]) -> dict[str, Any]:
        """Plain values of a checkpoint after `done` steps; every worker calls it."""
        return {"task": self.task, "step": done, "history": history, "window": [self.window.steps, self.window.totals()]}

    def state(self) -> dict[str, Any]:
        """Tensors that loading fills in place, and what the optimizer keeps beside them."""
        module, optimizer = get_state_dict(self.module, self.optimizer, options=self._options())
        averages = self.average.averages if self.average is not None else {}
        return {"module": module, "optimizer": optimizer, "averages": averages}

    def _options(self) -> StateDictOptions:
        return StateDictOptions(ignore_frozen_params=not self.keep_frozen, strict=self.keep_frozen)
