"""Several workers, one training: each holds all weights (DDP), or a share of them (FSDP2, `fully_shard`).

In: a module. Out: one whose gradients are averaged over the workers in the backward pass. Sharding works on a twin of the model, block by
block: a block's weights are gathered when it runs and dropped after it. Single precision is what the optimizer works on in both ways.
"""

from __future__ import annotations

import copy
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.nn.parallel import DistributedDataParallel

from reward.model.model import RewardModel


def replicated(module: nn.Module) -> nn.Module:
    """The module as one that all workers hold whole, beginning with the first worker's weights; itself when alone or sharded."""
    if not dist.is_initialized() or dist.get_world_size() == 1 or isinstance(module, FSDPModule):
        return module
    return DistributedDataParallel(module)


def sharded_twin(model: RewardModel, *, precision: Literal["fp32", "bf16"]) -> RewardModel:
    """A model that computes the same, of whose weights each worker holds a share; `model` is left without weights (on torch's meta device).

    All workers begin with the first one's weights. bf16: gathered and computed in bf16, gradients summed in float32; the heads in float32.
    """
    mesh = init_device_mesh(model.device.type, (dist.get_world_size(),))
    for tensor in [*model.parameters(), *model.buffers()]:
        dist.broadcast(tensor.detach(), 0)
    twin = copy.deepcopy(model, memo={id(parameter): parameter for parameter in model.parameters()})
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            setattr(module, name, nn.Parameter(parameter.detach().to("meta"), requires_grad=parameter.requires_grad))
    # Inputs are not cast: they follow the weights by themselves, and casting would copy the lists that `cached_root` fills.
    half_types = {"param_dtype": torch.bfloat16, "reduce_dtype": torch.float32} if precision == "bf16" else {}
    policy = MixedPrecisionPolicy(**half_types, cast_forward_inputs=False)
    for block in (*twin.backbone.visual.blocks, *twin.backbone.language_model.layers):
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(twin.heads, mesh=mesh)
    # Weights of the root are dropped after each pass too: what changes them between passes must not meet a gathered copy.
    fully_shard(twin, mesh=mesh, mp_policy=policy, reshard_after_forward=True)
    register_fsdp_forward_method(twin, "cached_root")
    return twin


def collect(twin: RewardModel, model: RewardModel) -> None:
    """Give `model`, which `twin` was made of, the twin's weights: on the first worker; on the others it stays without."""
    device = twin.device
    weights: dict[str, Any] = get_model_state_dict(twin, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if dist.get_rank() == 0:
        model.load_state_dict({name: weight.to(device) for name, weight in weights.items()}, assign=True)


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
