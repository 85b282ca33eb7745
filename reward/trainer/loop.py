"""The optimisation loop that captioning and ranking share: AdamW, schedule, clipping, metrics, exact resume.

Every step's data and randomness are functions of (seed, step, rank) alone, so a run that is killed anywhere and started again on the
same checkpoint directory ends with the same parameters, bit for bit. Under torch.distributed (set up by the caller) each rank computes its
share of the batch's loss, in one pass or several, and gradients are summed; all ranks see the same metrics and write their part of the
checkpoints.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from reward.config import OptimizerConfig
from reward.trainer.checkpoints import load_checkpoint, newest_sound_checkpoint, read_notes, save_checkpoint
from reward.trainer.ema import WeightAverage
from reward.trainer.sharding import replicated, unsynchronised

Metrics = dict[str, float]
Share = tuple[Tensor, dict[str, Tensor]]
"""A worker's share of a step's loss, and its shares of what to report; those of all workers and passes add up."""


def optimise(
    *,
    module: nn.Module,
    parameter_groups: list[dict[str, Any]],
    config: OptimizerConfig,
    steps: int,
    task: str,
    losses: Callable[[nn.Module, int], Share],
    validate: Callable[[int], Metrics],
    checkpoint_dir: Path,
    on_metrics: Callable[[Metrics], None],
) -> list[Metrics]:
    """Run to `steps` steps, from the newest sound checkpoint if there is one; returns all metrics since step 0.

    losses(module, step): this rank's share of the loss and of what to report; shares of all ranks add up. A share that is too large for
    one pass goes through `accumulate`.
    validate(step): metrics after a step, empty when none are due. task: what the checkpoints belong to, any text.
    on_metrics may see a step again after a resume. With ema_decay, validation sees the averaged weights, and the module ends with them.
    Raises ValueError if checkpoint_dir holds another task's checkpoints, or when loss or gradient are no longer finite.
    """
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    device = next(module.parameters()).device
    parallel = replicated(module)  # from here on all ranks have the same weights
    optimizer = torch.optim.AdamW(
        parameter_groups, lr=config.learning_rate, betas=config.betas, weight_decay=config.weight_decay, fused=True
    )
    peaks = [group["lr"] for group in optimizer.param_groups]
    learning = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    average = None if config.ema_decay is None else WeightAverage(module, config.ema_decay)
    record = _Record(module, optimizer, average, checkpoint_dir, hashlib.sha256(task.encode()).hexdigest(), config.keep_checkpoints)
    first, history = record.resume()
    autocast = config.precision == "bf16" and not isinstance(module, FSDPModule)  # sharded modules cast by themselves
    with _threads(config.threads), torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        module.train()
        for step in range(first, steps):
            rate = learning_rate_factor(step, steps, config)
            for group, peak in zip(optimizer.param_groups, peaks, strict=True):
                group["lr"] = peak * rate
            torch.manual_seed(derived_seed(config.seed, "dropout", step, rank))
            optimizer.zero_grad()
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=autocast):
                loss, reported = losses(parallel, step)
            _backward(loss)
            norm = _clip(learning, config.clip_norm)
            optimizer.step()
            if average is not None:
                average.update()
            done = step + 1
            metrics: Metrics = {}
            if done % config.log_every == 0 or done == steps:
                metrics = _reported(reported, norm, world, done) | {"learning_rate": peaks[0] * rate}
            with average.in_place() if average is not None else nullcontext():
                metrics |= validate(done)
            if metrics:
                metrics = {"step": done} | metrics
                history.append(metrics)
                on_metrics(metrics)
            if done % config.checkpoint_every == 0 or done == steps:
                record.save(done, history)
    if average is not None:
        average.swap()
    module.eval()
    return history


def accumulate(module: nn.Module, passes: Sequence[Callable[[], Share]]) -> Share:
    """One share from several passes, each a function: gradients of all but the last are added up here, those of the last by the caller.

    Workers exchange gradients once, with the last pass. At least one pass is needed.
    """
    count = len(passes)
    if isinstance(module, FSDPModule):  # in every pass workers gather weights from each other, so all need equally many
        most = torch.tensor(count, device=next(module.parameters()).device)
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
            total = _sum(total, reported)
    loss, reported = last()
    return loss, _sum(total, reported)


def learning_rate_factor(step: int, steps: int, config: OptimizerConfig) -> float:
    """Share of the peak rate at a step: linear warm-up over warmup_ratio, then constant, or a half cosine to zero."""
    warmup = round(config.warmup_ratio * steps)
    if step < warmup:
        return (step + 1) / warmup
    if config.schedule == "constant":
        return 1.0
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


def batch_order(count: int, batch: int, seed: int, step: int) -> list[int]:
    """Which of `count` items are in the batch of a step: slices of one shuffle after another."""
    start = step * batch
    return [_shuffle(count, seed, place // count)[place % count] for place in range(start, start + batch)]


def rank_share(items: list[int]) -> list[int]:
    """This rank's part of a batch: every world-th item."""
    if not dist.is_initialized():
        return items
    rank, world = dist.get_rank(), dist.get_world_size()
    if len(items) < world:
        raise ValueError(f"a batch of {len(items)} cannot be shared by {world} workers; use a larger batch or fewer workers")
    return items[rank::world]


def derived_seed(*parts: int | str) -> int:
    """A 63-bit seed from a tuple of numbers and names."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "big") >> 1


@lru_cache(maxsize=4)
def _shuffle(count: int, seed: int, epoch: int) -> list[int]:
    generator = torch.Generator().manual_seed(derived_seed(seed, "order", epoch))
    return torch.randperm(count, generator=generator).tolist()


@contextmanager
def _threads(count: int) -> Generator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _backward(loss: Tensor) -> None:
    """Gradients are averaged over the workers: of the share times their number, that makes the sum of the shares."""
    world = dist.get_world_size() if dist.is_initialized() else 1
    with torch.autocast(loss.device.type, enabled=False):
        (loss * world).backward()


def _clip(parameters: Sequence[nn.Parameter], limit: float) -> Tensor:
    """Scale gradients down to a norm; returns the norm that they had."""
    norm = nn.utils.get_total_norm([parameter.grad for parameter in parameters if parameter.grad is not None])
    if isinstance(norm, DTensor):
        norm = norm.full_tensor()
    nn.utils.clip_grads_with_norm_(parameters, limit, norm)
    return norm


def _sum(a: dict[str, Tensor], b: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach() + a.get(name, 0) for name, value in b.items()}


def _reported(values: dict[str, Tensor], norm: Tensor, world: int, step: int) -> Metrics:
    stacked = torch.stack([value.detach().float() for value in values.values()])
    if world > 1:
        dist.all_reduce(stacked)
    metrics = dict(zip(values, stacked.tolist(), strict=True)) | {"gradient_norm": float(norm)}
    broken = [name for name, value in metrics.items() if not math.isfinite(value)]
    if broken:
        raise ValueError(f"{broken[0]} is {metrics[broken[0]]} at step {step}; lower the learning rate or clip_norm, or check the weights")
    return metrics


class _Record:
    """What a run is resumed from: weights, optimizer, averages and metrics, in checkpoints of one task."""

    def __init__(
        self, module: nn.Module, optimizer: torch.optim.Optimizer, average: WeightAverage | None, directory: Path, task: str, keep: int
    ) -> None:
        self._module, self._optimizer, self._average = module, optimizer, average
        self._directory, self._task, self._keep = directory, task, keep

    def resume(self) -> tuple[int, list[Metrics]]:
        """Load the newest sound checkpoint; rank 0 chooses for all. Returns the steps done and their metrics."""
        several = dist.is_initialized() and dist.get_world_size() > 1
        chosen = [newest_sound_checkpoint(self._directory) if not several or dist.get_rank() == 0 else None]
        if several:
            dist.broadcast_object_list(chosen)
        path = chosen[0]
        if path is None:
            return 0, []
        notes = read_notes(path)
        if notes["task"] != self._task:
            raise ValueError(f"{path} belongs to other settings or data; use an empty checkpoint directory")
        state = self._state()
        load_checkpoint(path, state)
        set_state_dict(self._module, self._optimizer, model_state_dict=state["module"], optim_state_dict=state["optimizer"])
        return notes["step"], notes["history"]

    def save(self, done: int, history: list[Metrics]) -> None:
        """Write a checkpoint after `done` steps."""
        notes = {"task": self._task, "step": done, "history": history}
        save_checkpoint(self._directory, done, self._state(), notes=notes, keep=self._keep)

    def _state(self) -> dict[str, Any]:
        """Tensors that loading fills in place, and what the optimizer keeps beside them."""
        module, optimizer = get_state_dict(self._module, self._optimizer)
        averages = self._average.averages if self._average is not None else {}
        return {"module": module, "optimizer": optimizer, "averages": averages}
