"""Which of the workers of torch.distributed this process is, and its part of a batch."""

from __future__ import annotations

import torch.distributed as dist


def rank_and_world() -> tuple[int, int]:
    """This worker's number and the number of workers; 0 and 1 outside torch.distributed."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def rank_share(items: list[int]) -> list[int]:
    """This worker's part of a batch: every world-th item. Raises ValueError when a worker would get none."""
    rank, world = rank_and_world()
    if len(items) < world:
        raise ValueError(f"a batch of {len(items)} cannot be shared by {world} workers; use a larger batch or fewer workers")
    return items[rank::world]


def first_says(value: bool) -> bool:
    """What the first worker says, for all of them."""
    said = [value]
    if dist.is_initialized():
        dist.broadcast_object_list(said)
    return said[0]


def all_say(value: bool) -> bool:
    """Whether every worker says so."""
    said = [value] * rank_and_world()[1]
    if dist.is_initialized():
        dist.all_gather_object(said, value)
    return all(said)


def wait_for_all() -> None:
    """Wait until every worker is here."""
    if dist.is_initialized():
        dist.barrier()
