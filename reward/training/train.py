"""Training a reward model on preferences (EditReward, section 3.2), group by group.

In: rated groups. A step takes `groups_per_batch` groups, scores each candidate once and learns from all pairs of each group.
Out: the same model with new parameters, and the metrics of the run; validation is on held-out groups and chooses nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch.distributed as dist
from torch import Tensor, nn

from reward.config import LossConfig, TrainingConfig
from reward.evaluation.evaluate import predict
from reward.evaluation.metrics import labelled_pairs, pair_accuracy
from reward.inputs.batch import Presented, packed
from reward.inputs.sample import SampleError
from reward.model.model import RewardModel
from reward.trainer.loop import Metrics, Share, accumulate, batch_order, derived_seed, optimise, rank_share
from reward.trainer.sharding import collect, sharded_twin
from reward.training.groups import RatedGroup, loss_targets
from reward.training.losses import reward_loss


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

    Starts from the newest sound checkpoint in checkpoint_dir (which all workers share). With `parallel: fsdp` and several workers only the
    first one's model has weights in the end. Raises ValueError for no groups, for a source that is in both `groups` and `validation`, or
    for checkpoints of another run.
    """
    if not groups:
        raise ValueError("there are no groups to train on; rate candidates and build their preferences first")
    shared = {group.source_id for group in groups} & {group.source_id for group in validation}
    if shared:
        raise ValueError(f"source {sorted(shared)[0]} is in training and in validation; split by source")
    model.backbone.get_input_embeddings().weight.requires_grad_(not config.freeze_vocabulary)
    adapters = _adapters(model, config)
    if config.activation_checkpointing:
        model.backbone.activation_checkpointing_enable()
    sharded = config.parallel == "fsdp" and dist.is_initialized() and dist.get_world_size() > 1
    learner = sharded_twin(model, precision=config.precision) if sharded else model
    steps = config.steps or math.ceil((config.epochs or 0) * len(groups) / config.groups_per_batch)
    presented = _PresentedGroups(model, groups, config.cache_mebibytes * 2**20)
    held_out = _PresentedGroups(model, validation, config.cache_mebibytes * 2**20)
    dimensions = model.config.dimensions

    def losses(module: nn.Module, step: int) -> Share:
        order = batch_order(len(groups), config.groups_per_batch, config.seed, step)
        counts = loss_targets([groups[index] for index in order], dimensions, loss).counts().to(learner.device)
        mine = rank_share(order)
        parts = list(packed([presented[index] for index in mine], config.token_budget))
        places = iter(mine)
        owners = [[groups[next(places)] for _ in part] for part in parts]
        return accumulate(module, [partial(one_pass, module, *part, counts) for part in zip(parts, owners, strict=True)])

    def one_pass(module: nn.Module, sets: list[Presented], owners: list[RatedGroup], counts: Tensor) -> Share:
        targets = loss_targets(owners, dimensions, loss).to(learner.device)
        output = module(learner.collate(sets))
        result = reward_loss(output.mean, output.sigma, targets, loss, model.config.aggregation, counts)
        per_dimension = dict(zip(_named("loss", model), result.dimensions, strict=True))
        return result.total, {"loss": result.total, "loss/aggregate": result.aggregate} | per_dimension

    def validate(done: int) -> Metrics:
        if not validation or (done % config.validate_every and done != steps):
            return {}
        predictions = predict(model=learner, presented=[held_out[index] for index in range(len(validation))])
        pairs = labelled_pairs(validation, predictions)
        accuracies = {"validation/accuracy": pair_accuracy(pairs.overall_margin, pairs.overall)}
        for column, name in enumerate(_named("validation/accuracy", model)):
            accuracies[name] = pair_accuracy(pairs.margins[:, column], pairs.dimensions[:, column])
        return {name: value for name, value in accuracies.items() if not np.isnan(value)}

    history = optimise(
        module=learner,
        parameter_groups=_parameter_groups(learner, config),
        config=config,
        steps=steps,
        task=repr(
            (
                "training",
                config,
                loss,
                model.config,
                [(g.source_id, g.candidate_ids, [sorted(score.items()) for score in g.scores], g.preferences) for g in groups],
            )
        ),
        losses=losses,
        validate=validate,
        checkpoint_dir=checkpoint_dir,
        on_metrics=on_metrics,
    )
    if learner is not model:
        collect(learner, model)
    if adapters:
        from reward.trainer.lora import merge

        merge(model, adapters)
    return TrainedReward(model=model.eval(), steps=steps, history=history)


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


def _adapters(model: RewardModel, config: TrainingConfig) -> list[Any]:
    if config.adapter == "full":
        return []
    from reward.trainer.lora import adapt  # peft takes seconds to import

    return adapt(model, config.lora, seed=derived_seed(config.seed, "adapters"))


def _parameter_groups(model: RewardModel, config: TrainingConfig) -> list[dict[str, Any]]:
    """What learns: the backbone; heads and the reward token's vector."""
    learning = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    backbone = [parameter for name, parameter in learning.items() if name.startswith("backbone.")]
    rest = [parameter for name, parameter in learning.items() if not name.startswith("backbone.")]
    return [
        {"params": backbone, "lr": config.learning_rate},
        {"params": rest, "lr": config.head_learning_rate or config.learning_rate},
    ]


def _named(prefix: str, model: RewardModel) -> list[str]:
    return [f"{prefix}/{dimension}" for dimension in model.config.dimensions]
