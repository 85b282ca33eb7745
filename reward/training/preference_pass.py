"""What a step of the training on preferences is made of: the parts of a model that learn, and one pass from a batch to its loss."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from reward.inputs.batch import Batch
from reward.model.model import RewardModel
from reward.trainer.loop import LossTerms
from reward.trainer.order import derived_seed
from reward.trainer.sharding import ReadRows
from reward.training.config import LossConfig, TrainingConfig
from reward.training.losses import reward_loss
from reward.training.targets import PairTargets, RatingTargets

BLOCK_LISTS = ("backbone.visual.blocks", "backbone.language_model.layers")
"""Lists of blocks of a reward model; with fsdp a block's weights are gathered when it runs."""


def ready_to_learn(model: RewardModel, config: TrainingConfig) -> list[Any]:
    """Freeze what does not learn, put adapters in, recompute activations, each as configured. Returns the adapters, to be merged later."""
    model.backbone.get_input_embeddings().weight.requires_grad_(not config.freeze_vocabulary)
    adapters = _adapters(model, config)
    if config.activation_checkpointing:
        model.backbone.activation_checkpointing_enable()
    return adapters


def take_unread(model: RewardModel) -> dict[str, ReadRows]:
    """What reads the weights that are still in files, by the names that they have now, adapters around them or not.

    The model forgets it: open files cannot be copied with a model.
    """
    unread, model.unread = model.unread, {}
    absent = [name for name, weight in model.named_parameters() if weight.is_meta]
    return {name: unread[name.replace(".base_layer.", ".")].rows for name in absent} if unread else {}


def preference_pass(
    model: RewardModel,
    loss: LossConfig,
    module: nn.Module,
    batch: Batch,
    targets: PairTargets | RatingTargets,
    counts: Tensor,
    *,
    idle: bool,
) -> LossTerms:
    """The loss of a batch of groups and its terms by name. module: `model`, or what workers have it wrapped in; counts: see `reward_loss`.

    idle: the pass has no effect on gradients and metrics.
    """
    output = module(batch)
    result = reward_loss(output.mean, output.sigma, targets, loss, model.config.aggregation, counts)
    terms = {"loss": result.total, "loss/aggregate": result.aggregate} | dict(zip(named("loss", model), result.dimensions, strict=True))
    return (result.total * 0, {name: term * 0 for name, term in terms.items()}) if idle else (result.total, terms)


def named(prefix: str, model: RewardModel) -> list[str]:
    """Name of a metric per dimension."""
    return [f"{prefix}/{dimension}" for dimension in model.config.dimensions]


def _adapters(model: RewardModel, config: TrainingConfig) -> list[Any]:
    if config.adapter == "full":
        return []
    from reward.trainer.lora import adapt  # peft takes seconds to import

    model.backbone.requires_grad_(False)
    parts = [model.backbone.language_model, *([model.backbone.visual] if config.lora.vision else [])]
    return adapt(parts, config.lora, seed=derived_seed(config.seed, "adapters"), device=model.device)
