"""An exponential average of the weights while they train (Polyak and Juditsky 1992), for validation and export.

In: a module, after each optimizer step. Out: the average, put in place of the module's weights for a while or for good. Weights that are
sharded over workers are averaged shard by shard.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim.swa_utils import get_ema_multi_avg_fn


class WeightAverage:
    """average <- decay * average + (1 - decay) * weights, of all weights that learn. The first average is the weights as they are.

    averages: by parameter name, shaped and sharded as the weights; part of a checkpoint.
    """

    def __init__(self, module: nn.Module, decay: float) -> None:
        self._weights = {name: weight for name, weight in module.named_parameters() if weight.requires_grad}
        self.averages: dict[str, Tensor] = {name: weight.detach().clone() for name, weight in self._weights.items()}
        self._move = get_ema_multi_avg_fn(decay)

    def update(self) -> None:
        """Take the weights of one more step into the average."""
        self._move(_local(self.averages), _local(self._weights), None)

    @torch.no_grad()
    def swap(self) -> None:
        """Exchange weights and averages. A second call undoes the first."""
        for weight, average in zip(_local(self._weights), _local(self.averages), strict=True):
            kept = weight.clone()
            weight.copy_(average)
            average.copy_(kept)

    @contextmanager
    def in_place(self) -> Generator[None]:
        """Inside the `with` block the module has the averaged weights."""
        self.swap()
        try:
            yield
        finally:
            self.swap()


def _local(tensors: Mapping[str, Tensor]) -> list[Tensor]:
    """This worker's part of each tensor."""
    whole = [tensor.detach() for tensor in tensors.values()]
    return [tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in whole]
