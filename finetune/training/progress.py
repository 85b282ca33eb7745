"""What is measured and shown while an editor trains, on pairs that no arm trains on: the loss at fixed times, and sampled edits.

Noise is a function of the pair, so two measurements differ by the weights alone. Latents of the pairs are the means of their posteriors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch import Tensor

from finetune.config import SamplingConfig
from finetune.editing_model import EditingModel, Moments
from finetune.rectified_flow import Draws, batch_loss
from finetune.sampling import sample_latents
from finetune.training.config import ProgressConfig
from finetune.training.pairs import StoredPairs
from reward.trainer.config import Precision
from reward.trainer.loop import Metrics
from reward.trainer.order import derived_seed
from reward.trainer.workers import rank_and_world

OnSamples = Callable[[int, dict[int, Tensor]], None]
"""on_samples(step, latents): edits [channels, rows, columns] by the number of their held-out pair, on the CPU."""


class Progress:
    """Measures and samples; every worker does its share of the pairs, and calls `measure` at the same steps."""

    def __init__(
        self, model: EditingModel, pairs: StoredPairs, config: ProgressConfig, sampling: SamplingConfig, precision: Precision
    ) -> None:
        self._model, self._pairs, self._config, self._sampling = model, pairs, config, sampling
        self._bf16 = precision == "bf16"
        self.samples: dict[int, Tensor] = {}

    def taken(self) -> dict[int, Tensor]:
        """The samples of the last measurement, once."""
        taken, self.samples = self.samples, {}
        return taken

    @torch.no_grad()
    def measure(self) -> Metrics:
        """`held_out` is the mean loss over pairs and times, `held_out/<time>` that at one time. Edits are sampled beside it."""
        device = next(parameter for _, parameter in self._model.named_parameters()).device
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=self._bf16):
            sums = torch.zeros(len(self._config.times), dtype=torch.float64)
            for number, counts in _share(len(self._pairs.bucket_of)):
                sums += counts * self._losses(number, device)
            shown = min(self._config.samples, len(self._pairs.bucket_of))
            self.samples = {number: self._sample(number) for number, _ in _share(shown)}
        if dist.is_initialized():
            dist.all_reduce(sums)
        means = (sums / len(self._pairs.bucket_of)).tolist()
        at_times = {f"held_out/{time:g}": mean for time, mean in zip(self._config.times, means, strict=True)}
        return {"held_out": sum(means) / len(means)} | at_times

    def _losses(self, number: int, device: torch.device) -> Tensor:
        """Losses [times] of one pair."""
        pair = self._pairs.read(number)
        target, reference = (moments.mean[None].to(device).float() for moments in (pair.target, pair.reference))
        condition = {name: tensor.to(device) for name, tensor in self._model.collate([pair.condition]).items()}
        certain = [Moments(mean, torch.zeros_like(mean)) for mean in (target, reference)]
        noise = _noise(number, target.shape).to(device)
        nothing = torch.zeros_like(target), torch.zeros_like(reference), torch.zeros(1, dtype=torch.bool, device=device)
        draws = [Draws(torch.full((1,), time, device=device), noise, *nothing) for time in self._config.times]
        return torch.tensor([float(batch_loss(self._model, *certain, condition, drawn)) for drawn in draws], dtype=torch.float64)

    def _sample(self, number: int) -> Tensor:
        pair = self._pairs.read(number)
        nulls = [self._pairs.read_null(number)] if self._sampling.guidance != 1 else []
        noise = _noise(number, (1, *pair.target.mean.shape))
        return sample_latents(self._model, pair.reference.mean[None].float(), [pair.condition], nulls, noise, self._sampling)[0].cpu()


def _share(count: int) -> Iterator[tuple[int, bool]]:
    """This worker's numbers, and whether each counts: all workers have equally many, since sharded weights need all of them in a pass."""
    rank, world = rank_and_world()
    for turn in range(math.ceil(count / world)):
        number = turn * world + rank
        yield min(number, count - 1), number < count


def _noise(number: int, shape: tuple[int, ...] | torch.Size) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(derived_seed("held-out", number)))
