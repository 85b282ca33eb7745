"""Training a reward model on preferences (EditReward, section 3.2), group by group or pair by pair.

In: rated groups. A step takes `groups_per_batch` groups, scores each candidate once and learns from all pairs of each group; or it takes
`pairs_per_batch` pairs, as the paper does, and scores the two candidates of each.
Out: the same model with new parameters, and the metrics of the run; validation reports on held-out groups and chooses no checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch.distributed as dist
from torch import Tensor, nn

from reward.config import TOKEN_BUDGET
from reward.evaluation.evaluate import predict
from reward.evaluation.metrics import labelled_pairs, pair_accuracy
from reward.inputs.batch import PreparedSample, packed
from reward.inputs.groups import RatedGroup
from reward.inputs.loading import GroupLoader
from reward.model.model import RewardModel
from reward.trainer.loop import LossTerms, Metrics, Objective, accumulate, optimise
from reward.trainer.order import batch_order, epoch_shuffles
from reward.trainer.sharding import sharded_copy, will_shard
from reward.trainer.workers import rank_and_world
from reward.training.batches import batch_size, check_token_budget, separate_pairs, total_steps
from reward.training.config import LossConfig, TrainingConfig
from reward.training.preference_pass import BLOCK_LISTS, named, preference_pass, ready_to_learn, take_unread
from reward.training.targets import loss_targets


@dataclass(frozen=True)
class TrainedReward:
    """A trained model and all metrics since step 0, also those of before an interruption.

    Each entry of history has `step`, and training losses and validation accuracies where they were due.
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
    """Train `model` in place, on its device; under torch.distributed when the caller has initialised it (for GPUs with the backend
    `cpu:gloo,cuda:nccl`, because numbers of the CPU are exchanged, too). Weights that are unread are read, with fsdp each worker's shard.

    Starts from the newest sound checkpoint in checkpoint_dir (which all workers share). on_metrics gets all reports since step 0, those of
    finished steps first. With `parallel: fsdp` and several workers only the first worker's model has weights in the end.
    Raises ValueError for no groups, for pairs that are all ties, for a source that is in both `groups` and `validation`, for checkpoints
    of another run or that cannot be written, for an edit of more tokens than token_budget, or for an image that cannot be read or decoded
    when its step comes.
    """
    if not groups:
        raise ValueError("there are no groups to train on; rate candidates and build their preferences first")
    shared = {group.source_id for group in groups} & {group.source_id for group in validation}
    if shared:
        raise ValueError(f"source {sorted(shared)[0]} is in training and in validation; split by source")
    if not will_shard(config.parallel):
        model.read_weights()
    adapters = ready_to_learn(model, config)
    if config.pairs_per_batch is not None:
        groups = separate_pairs(groups, loss)
        if not groups:
            raise ValueError(
                "every pair is a tie, so there is nothing to learn; rate more candidates, or take loss.kind bradley_terry_ties"
            )
    steps = total_steps(config, len(groups))
    with sharded_copy(
        model,
        parallel=config.parallel,
        precision=config.precision,
        block_lists=BLOCK_LISTS,
        float32=("heads",),
        methods=("cached_root",),
        stored=take_unread(model),
    ) as learner:
        history = optimise(
            module=learner,
            parameter_groups=_parameter_groups(learner, config),
            config=config,
            steps=steps,
            warmup_steps=round(config.warmup_ratio * steps),
            objective=_preference_objective(learner, config, loss, groups, steps),
            task=repr(
                (
                    "training",
                    config,
                    loss,
                    model.config,
                    [(g.source_id, g.candidate_ids, [sorted(score.items()) for score in g.scores], g.preferences) for g in groups],
                )
            ),
            checkpoint_dir=checkpoint_dir,
            report_every=config.log_every,
            on_metrics=on_metrics,
            validate=_validation(learner, config, validation) if validation else None,
            validate_every=config.validate_every,
        )
    for adapter in adapters:
        adapter.merge_and_unload()
    if adapters:
        model.requires_grad_(True)
    return TrainedReward(model=model.eval(), steps=steps, history=history)


def _preference_objective(
    model: RewardModel, config: TrainingConfig, loss: LossConfig, groups: Sequence[RatedGroup], steps: int
) -> Objective:
    """The loss of a step's groups. Each worker takes its share of them, in as many passes as the token budget asks for."""
    loader = _loader(model, config, groups)
    order = batch_order(len(groups), batch_size(config), epoch_shuffles(config.seed))
    dimensions = model.config.dimensions
    ahead: tuple[int, Iterator[list[PreparedSample]]] | None = None  # the next step, and the batches from it on

    def share(step: int) -> list[int]:
        """This worker's part. One for which nothing is left computes the first group without effect, because all workers exchange weights
        and gradients.
        """
        rank, world = rank_and_world()
        batch = order(step)
        return batch[rank::world] or batch[:1]

    def prepared(step: int) -> list[PreparedSample]:
        nonlocal ahead
        if ahead is None or ahead[0] != step:  # at the first step, which a resumed run has anywhere
            ahead = step, loader.batches(share(coming) for coming in range(step, steps))
        ahead = step + 1, ahead[1]
        return next(ahead[1])

    def one_pass(module: nn.Module, samples: list[PreparedSample], rated: list[RatedGroup], counts: Tensor, *, idle: bool) -> LossTerms:
        targets = loss_targets(rated, dimensions, loss).to(model.device)
        return preference_pass(model, loss, module, model.collate(samples), targets, counts, idle=idle)

    def objective(module: nn.Module, step: int) -> LossTerms:
        batch = order(step)
        # Each term is divided by the labels of the whole batch, not of its pass: so the terms of all passes and workers add up to the mean.
        counts = loss_targets([groups[index] for index in batch], dimensions, loss).counts().to(model.device)
        idle = rank_and_world()[0] >= len(batch)
        mine, samples = [groups[index] for index in share(step)], prepared(step)
        for sample, group in zip(samples, mine, strict=True):
            check_token_budget(sample, group, config.token_budget)
        parts = list(packed(samples, config.token_budget))
        rated = iter(mine)
        return accumulate(module, [partial(one_pass, module, part, [next(rated) for _ in part], counts, idle=idle) for part in parts])

    return objective


def _validation(model: RewardModel, config: TrainingConfig, groups: Sequence[RatedGroup]) -> Callable[[], Metrics]:
    """Accuracies on held-out groups. Each worker scores its share of them."""
    loader = _loader(model, config, groups)

    def validate() -> Metrics:
        rank, world = rank_and_world()
        # With fsdp workers gather weights from each other in every pass, so all make equally many: one per group, a last one perhaps twice.
        share = [index % len(groups) for index in range(rank, rank + world * math.ceil(len(groups) / world), world)]
        prepared = (item for batch in loader.batches([index] for index in share) for item in batch)
        found = predict(model=model, prepared=prepared, token_budget=TOKEN_BUDGET if world == 1 else 1)
        shares = [found] * world
        if world > 1:
            dist.all_gather_object(shares, found)
        predictions = [shares[index % world][index // world] for index in range(len(groups))]
        pairs = labelled_pairs(groups, predictions)
        accuracies = {"validation/accuracy": pair_accuracy(pairs.overall_margin, pairs.overall)}
        for column, name in enumerate(named("validation/accuracy", model)):
            accuracies[name] = pair_accuracy(pairs.margins[:, column], pairs.dimensions[:, column])
        return {name: value for name, value in accuracies.items() if not np.isnan(value)}

    return validate


def _loader(model: RewardModel, config: TrainingConfig, groups: Sequence[RatedGroup]) -> GroupLoader:
    return GroupLoader(model.processor, groups, workers=config.loader_workers, cache_bytes=config.cache_mebibytes * 2**20)


def _parameter_groups(model: RewardModel, config: TrainingConfig) -> list[dict[str, Any]]:
    """What learns: the backbone; heads and the reward token's vector."""
    learning = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    backbone = [parameter for name, parameter in learning.items() if name.startswith("backbone.")]
    rest = [parameter for name, parameter in learning.items() if not name.startswith("backbone.")]
    return [
        {"params": backbone, "lr": config.learning_rate},
        {"params": rest, "lr": config.head_learning_rate or config.learning_rate},
    ]
