"""The rectified flow over encoded pairs: this worker's terms of a step's loss (`finetune.rectified_flow`)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from finetune.editing_model import Condition, EditingModel, Moments
from finetune.rectified_flow import Draws, batch_loss
from finetune.training.loading import PairLoader, PreparedPair
from reward.trainer.loop import LossTerms, Objective, accumulate


def flow_objective(model: EditingModel, loader: PairLoader, *, batch_size: int, pairs_per_pass: int) -> Objective:
    """Mean over the batch of a step. Each worker takes its share, in passes of one size; gradients add up."""
    device = next(parameter for _, parameter in model.named_parameters()).device

    def one_pass(module: Any, pairs: Sequence[PreparedPair]) -> LossTerms:
        loss = batch_loss(module, *batch_of(model, pairs, device)) * (len(pairs) / batch_size)
        return loss, {"loss": loss}

    def objective(module: nn.Module, step: int) -> LossTerms:
        passes = [partial(one_pass, module, pairs) for pairs in of_one_size(loader.share(step), pairs_per_pass)]
        return accumulate(module, passes)

    return objective


def of_one_size(pairs: Sequence[PreparedPair], most: int) -> Iterator[Sequence[PreparedPair]]:
    """Neighbours of one bucket, not more than `most` of them."""
    for _, same in itertools.groupby(pairs, key=lambda pair: pair.bucket):
        members = list(same)
        for start in range(0, len(members), most):
            yield members[start : start + most]


def batch_of(model: EditingModel, pairs: Sequence[PreparedPair], device: torch.device) -> tuple[Moments, Moments, Condition, Draws]:
    """Pairs of one bucket as one batch on the device: moments of target and reference [n, channels, rows, columns], condition, draws."""
    target, reference = (_stacked([getattr(pair, name) for pair in pairs], device) for name in ("target", "reference"))
    condition = {name: tensor.to(device) for name, tensor in model.collate([pair.condition for pair in pairs]).items()}
    names = ("time", "noise", "target", "reference", "dropped")
    draws = Draws(*(torch.cat([getattr(pair.draws, name) for pair in pairs]) for name in names))
    return target, reference, condition, draws.to(device)


def _stacked(moments: Sequence[Moments], device: torch.device) -> Moments:
    mean, deviation = (torch.stack([getattr(one, name) for one in moments]).to(device).float() for name in ("mean", "deviation"))
    return Moments(mean, deviation)
