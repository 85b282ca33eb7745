"""The optimisation loop that captioning and ranking share: AdamW, schedule, clipping, metrics, exact resume.

Every step's data and randomness are functions of (seed, step, rank) alone, so a run that is killed anywhere and started again on the
same checkpoint directory ends with the same parameters, bit for bit. Under torch.distributed (set up by the caller) each rank computes its
share of the batch's loss and gradients are summed; all ranks see the same metrics, rank 0 writes the checkpoints.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from reward.checkpoints import load_checkpoint, newest_sound_checkpoint, save_checkpoint
from reward.config import OptimizerConfig

Metrics = dict[str, float]


def optimise(
    *,
    module: nn.Module,
    parameter_groups: list[dict[str, Any]],
    config: OptimizerConfig,
    steps: int,
    task: str,
    losses: Callable[[nn.Module, int], tuple[Tensor, dict[str, Tensor]]],
    validate: Callable[[int], Metrics],
    checkpoint_dir: Path,
    on_metrics: Callable[[Metrics], None],
) -> list[Metrics]:
    """Run to `steps` steps, from the newest sound checkpoint if there is one; returns all metrics since step 0.

    losses(module, step): this rank's share of the loss and of what to report; shares of all ranks add up.
    validate(step): metrics after a step, empty when none are due. task: what the checkpoints belong to, any text.
    on_metrics may see a step again after a resume. Raises ValueError if checkpoint_dir holds another task's checkpoints.
    """
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    task_hash = hashlib.sha256(task.encode()).hexdigest()
    device = next(module.parameters()).device
    optimizer = torch.optim.AdamW(
        parameter_groups, lr=config.learning_rate, betas=config.betas, weight_decay=config.weight_decay, fused=True
    )
    peaks = [group["lr"] for group in optimizer.param_groups]
    first, history = _resume(module, optimizer, checkpoint_dir, task_hash, world)
    parallel = DistributedDataParallel(module) if world > 1 else module
    with _threads(config.threads), torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        module.train()
        for step in range(first, steps):
            rate = learning_rate_factor(step, steps, config)
            for group, peak in zip(optimizer.param_groups, peaks, strict=True):
                group["lr"] = peak * rate
            torch.manual_seed(derived_seed(config.seed, "dropout", step, rank))
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=config.precision == "bf16"):
                loss, reported = losses(parallel, step)
            optimizer.zero_grad()
            (loss * world).backward()  # averaged over ranks by DistributedDataParallel: together, the sum
            norm = nn.utils.clip_grad_norm_(module.parameters(), config.clip_norm)
            optimizer.step()
            done = step + 1
            metrics: Metrics = {}
            if done % config.log_every == 0 or done == steps:
                metrics = _reported(reported, norm, world) | {"learning_rate": peaks[0] * rate}
            metrics |= validate(done)
            if metrics:
                metrics = {"step": done} | metrics
                history.append(metrics)
                on_metrics(metrics)
            if done % config.checkpoint_every == 0 or done == steps:
                _save(module, optimizer, history, checkpoint_dir, task_hash, done, rank, world)
    module.eval()
    return history


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


def _reported(values: dict[str, Tensor], norm: Tensor, world: int) -> Metrics:
    stacked = torch.stack([value.detach().float() for value in values.values()])
    if world > 1:
        dist.all_reduce(stacked)
    return dict(zip(values, stacked.tolist(), strict=True)) | {"gradient_norm": float(norm)}


def _resume(module: nn.Module, optimizer: torch.optim.Optimizer, directory: Path, task_hash: str, world: int) -> tuple[int, list[Metrics]]:
    """Load the newest sound checkpoint; rank 0 chooses for all. Returns the steps done and their metrics."""
    chosen = [newest_sound_checkpoint(directory)]
    if world > 1:
        dist.broadcast_object_list(chosen)
    if chosen[0] is None:
        return 0, []
    state = load_checkpoint(chosen[0])
    if state["task"] != task_hash:
        raise ValueError(f"{chosen[0]} belongs to other settings or data; use an empty checkpoint directory")
    module.load_state_dict(state["module"])
    optimizer.load_state_dict(state["optimizer"])
    return state["step"], state["history"]


def _save(
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    history: list[Metrics],
    directory: Path,
    task_hash: str,
    done: int,
    rank: int,
    world: int,
) -> None:
    if rank == 0:
        state = {
            "task": task_hash,
            "step": done,
            "module": module.state_dict(),
            "optimizer": optimizer.state_dict(),
            "history": history,
        }
        save_checkpoint(directory, done, state)
    if world > 1:
        dist.barrier()
