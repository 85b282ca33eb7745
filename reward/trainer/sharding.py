"""Several workers, one training: each has all weights (DDP), or a shard of them (FSDP2, `fully_shard`).

In: a module. Out: one whose gradients are averaged over the workers in the backward pass. Sharding works on a copy of the module, block by
block: a block's weights are gathered when it runs and dropped after it. Weights that are still in files are sharded first and read then,
by each worker its rows. In both ways the optimizer works on float32 weights.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from reward.trainer.config import Parallel, Precision
from reward.trainer.workers import rank_and_world

M = TypeVar("M", bound=nn.Module)
ReadRows = Callable[[int, int], Tensor]
"""Rows of a weight, from the first until before the last, from where it is stored."""


def will_shard(parallel: Parallel) -> bool:
    """Whether each worker will have a shard of the weights: with fsdp and several workers."""
    return parallel == "fsdp" and rank_and_world()[1] > 1


def replicated(module: nn.Module, *, unused: bool = False) -> nn.Module:
    """The module with its weights on every worker, equal to the first worker's; itself when there is one worker or when it is sharded.

    Buffers are taken as constants: they are copied from the first worker once, not in every pass. unused: some weights that learn reach no
    output.
    """
    if rank_and_world()[1] == 1 or isinstance(module, FSDPModule):
        return module
    return DistributedDataParallel(module, broadcast_buffers=False, find_unused_parameters=unused)


@contextmanager
def sharded_copy(
    module: M,
    *,
    parallel: Parallel,
    precision: Precision,
    block_lists: Sequence[str],
    float32: Sequence[str] = (),
    methods: Sequence[str] = (),
    stored: Mapping[str, ReadRows] | None = None,
    device: torch.device | None = None,
) -> Generator[M]:
    """What to train inside the `with` block: for `fsdp` with several workers a sharded copy of the module, else the module itself.

    While a copy trains, the module is without weights (on torch's meta device). At the end it gets the trained ones on the first worker;
    on the others it stays without. All workers begin with the first one's weights.

    block_lists: names of `nn.ModuleList`s; each of their items is gathered when it runs. methods: names of methods that use the weights,
    beside forward. float32: names of parts whose weights are gathered in float32; to compute in it, they turn autocast off themselves.
    precision bf16: weights are gathered in bf16 (compute under `torch.autocast`), gradients are summed in float32. stored: by parameter
    name, what reads the weights that are on the meta device; they may be there where `will_shard` says so. device: where a module learns
    that is wholly on the meta device; its trained weights come to the memory of the host.
    """
    if not will_shard(parallel):
        yield module
        return
    present = [tensor.detach() for tensor in (*module.parameters(), *module.buffers()) if not tensor.is_meta]
    home = present[0].device if present else torch.device("cpu")
    device = device or home
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for tensor in present:
        dist.broadcast(tensor, 0)
    learner = copy.deepcopy(module, memo={id(parameter): parameter for parameter in module.parameters()})  # takes over the weights
    for part in module.modules():
        for name, parameter in part.named_parameters(recurse=False):
            setattr(part, name, nn.Parameter(parameter.detach().to("meta"), requires_grad=parameter.requires_grad))
    # Inputs are not cast: autocast does that, and casting would copy containers that a pass fills, such as a list of keys and values.
    half_types = {"param_dtype": torch.bfloat16, "reduce_dtype": torch.float32} if precision == "bf16" else {}
    policy = MixedPrecisionPolicy(**half_types, cast_forward_inputs=False)
    for name in block_lists:
        for block in learner.get_submodule(name).children():
            fully_shard(block, mesh=mesh, mp_policy=policy)
    for name in float32:
        fully_shard(learner.get_submodule(name), mesh=mesh)
    # Weights of the root are dropped after each pass too: what changes them between passes must not meet a gathered copy.
    fully_shard(learner, mesh=mesh, mp_policy=policy, reshard_after_forward=True)
    for method in methods:
        register_fsdp_forward_method(learner, method)
    _read_shards(learner, stored or {}, device)
    yield learner
    weights: dict[str, Any] = get_model_state_dict(learner, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if dist.get_rank() == 0:
        module.load_state_dict({name: weight.to(home) for name, weight in weights.items()}, assign=True)


def _read_shards(learner: nn.Module, stored: Mapping[str, ReadRows], device: torch.device) -> None:
    """Give weights that are on the meta device this worker's rows, as float32."""
    rank, world = rank_and_world()
    shards = {}
    for name, weight in learner.named_parameters():
        if weight.is_meta:
            assert isinstance(weight, DTensor)
            each = -(-len(weight) // world)  # rows of a shard; the last ones may have fewer, as `torch.chunk` makes them
            first, last = (min(index * each, len(weight)) for index in (rank, rank + 1))
            rows = stored[name](first, last).to(device, torch.float32, copy=True)
            assert rows.shape == weight.to_local().shape
            shard = DTensor.from_local(rows, weight.device_mesh, weight.placements, shape=weight.shape, stride=weight.stride())
            shards[name] = nn.Parameter(shard)
    learner.load_state_dict(shards, strict=False, assign=True)


@contextmanager
def unsynchronised(module: nn.Module) -> Generator[None]:
    """Inside, backward passes add to the gradients of this worker only; the first one after it averages them over the workers."""
    if isinstance(module, DistributedDataParallel):
        with module.no_sync():
            yield
    elif isinstance(module, FSDPModule):
        module.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            module.set_requires_gradient_sync(True)
    else:
        yield
