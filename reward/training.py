"""Training a reward model on preferences (EditReward, section 3.2), group by group.

In: rated groups. A step takes `groups_per_batch` groups, scores each candidate once and learns from all pairs of each group.
Out: the same model with new parameters, and the metrics of the run; validation is on held-out groups and chooses nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from reward.batch import Presented
from reward.config import LossConfig, TrainingConfig
from reward.evaluation import predict
from reward.groups import RatedGroup, pair_targets
from reward.loop import Metrics, batch_order, optimise, rank_share
from reward.losses import ranking_loss
from reward.metrics import labelled_pairs, pair_accuracy
from reward.model import RewardModel
from reward.sample import SampleError


@dataclass(frozen=True)
class TrainedReward:
    """A trained model and all metrics since step 0, also those of before an interruption.

    Each entry of history has `step`; training losses and validation accuracies stand in it where they were due.
    """

    model: RewardModel
    steps: int
    history: list[Metrics]


def train(
    *,
    model: RewardModel,
    config: TrainingConfig,
    loss: LossConfig,
    groups: Sequence[RatedGroup],
    validation: Sequence[RatedGroup],
    checkpoint_dir: Path,
    on_metrics: Callable[[Metrics], None],
) -> TrainedReward:
    """Train `model` in place, on its device; under torch.distributed when the caller has initialised it.

    Starts from the newest sound checkpoint in checkpoint_dir (which all workers share). Raises ValueError for no groups, for a source
    that is in both `groups` and `validation`, or for checkpoints of another run.
    """
    if not groups:
        raise ValueError("there are no groups to train on; rate candidates and build their preferences first")
    shared = {group.source_id for group in groups} & {group.source_id for group in validation}
    if shared:
        raise ValueError(f"source {sorted(shared)[0]} is in training and in validation; split by source")
    if config.activation_checkpointing:
        model.backbone.activation_checkpointing_enable()
    steps = config.steps or math.ceil((config.epochs or 0) * len(groups) / config.groups_per_batch)
    presented = _PresentedGroups(model, groups, config.cache_mebibytes * 2**20)
    held_out = _PresentedGroups(model, validation, config.cache_mebibytes * 2**20)
    dimensions = len(model.config.dimensions)

    def losses(module: nn.Module, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        order = batch_order(len(groups), config.groups_per_batch, config.seed, step)
        counts = pair_targets([groups[index] for index in order], dimensions).counts().to(model.device)
        mine = rank_share(order)
        pairs = pair_targets([groups[index] for index in mine], dimensions).to(model.device)
        output = module(model.collate([presented[index] for index in mine]))
        result = ranking_loss(output.mean, output.sigma, pairs, loss, counts)
        per_dimension = dict(zip(_named("loss", model), result.dimensions, strict=True))
        return result.total, {"loss": result.total, "loss/aggregate": result.aggregate} | per_dimension

    def validate(done: int) -> Metrics:
        if not validation or (done % config.validate_every and done != steps):
            return {}
        predictions = predict(model=model, presented=[held_out[index] for index in range(len(validation))])
        pairs = labelled_pairs(validation, predictions)
        accuracies = {"validation/accuracy": pair_accuracy(pairs.overall_margin, pairs.overall)}
        for column, name in enumerate(_named("validation/accuracy", model)):
            accuracies[name] = pair_accuracy(pairs.margins[:, column], pairs.dimensions[:, column])
        return {name: value for name, value in accuracies.items() if not np.isnan(value)}

    history = optimise(
        module=model,
        parameter_groups=_parameter_groups(model, config),
        config=config,
        steps=steps,
        task=repr(("training", config, loss, model.config, [(g.source_id, g.candidate_ids, g.preferences) for g in groups])),
        losses=losses,
        validate=validate,
        checkpoint_dir=checkpoint_dir,
        on_metrics=on_metrics,
    )
    return TrainedReward(model=model, steps=steps, history=history)


class _PresentedGroups:
    """Decoded groups by position; kept while they fit into a number of bytes, else decoded at each use."""

    def __init__(self, model: RewardModel, groups: Sequence[RatedGroup], capacity: int) -> None:
        self._model, self._groups, self._room = model, groups, capacity
        self._kept: dict[int, Presented] = {}

    def __getitem__(self, index: int) -> Presented:
        if index in self._kept:
            return self._kept[index]
        group = self._groups[index]
        try:
            presented = self._model.present(source=group.source, candidates=group.candidates, instruction=group.instruction)
        except SampleError as error:
            raise SampleError(f"group {group.source_id}: {error}") from error
        if presented.bytes <= self._room:
            self._room -= presented.bytes
            self._kept[index] = presented
        return presented


def _parameter_groups(model: RewardModel, config: TrainingConfig) -> list[dict[str, Any]]:
    return [
        {"params": list(model.backbone.parameters()), "lr": config.learning_rate},
        {"params": list(model.heads.parameters()), "lr": config.head_learning_rate or config.learning_rate},
    ]


def _named(prefix: str, model: RewardModel) -> list[str]:
    return [f"{prefix}/{dimension}" for dimension in model.config.dimensions]
