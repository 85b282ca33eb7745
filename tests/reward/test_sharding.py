"""Sharding by itself: each worker reads its rows of the weights that are in files, and nothing else."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.testing._internal.distributed.fake_pg import FakeStore

from reward.trainer.sharding import sharded_copy


class Stop(Exception):
    """Ends the block before shards would be collected, which a process alone cannot."""


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_worker_reads_its_rows(rank: int) -> None:
    """Five rows for three workers, and one; a weight that is not in files stays as it is."""
    with torch.device("meta"):
        module = nn.Sequential(nn.ModuleList([nn.Linear(4, 5)]), nn.Linear(5, 1))
    module.register_parameter("kept", nn.Parameter(torch.arange(6.0)))
    module[1].weight.requires_grad_(False)
    files = {name: torch.randn(tensor.shape).bfloat16() for name, tensor in module.named_parameters() if tensor.is_meta}
    asked = {}

    def reader(name: str) -> Tensor:
        return lambda first, last: asked.setdefault(name, files[name][first:last])

    dist.init_process_group("fake", rank=rank, world_size=3, store=FakeStore())
    try:
        with (
            pytest.raises(Stop),
            sharded_copy(
                module, parallel="fsdp", precision="fp32", block_lists=("0",), stored={name: reader(name) for name in files}
            ) as learner,
        ):
            for name, weight in learner.named_parameters():
                whole = files.get(name, torch.arange(6.0))
                mine = [*whole.chunk(3), whole[:0], whole[:0]][rank]
                assert torch.equal(weight.to_local(), mine.float()) and weight.dtype == torch.float32, name
                assert weight.requires_grad == (name != "1.weight")
                assert name == "kept" or len(asked[name]) == len(mine)
            raise Stop
    finally:
        dist.destroy_process_group()
    assert asked.keys() == files.keys()
