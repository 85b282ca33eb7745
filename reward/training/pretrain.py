"""The stand-in for web pretraining: a backbone with random weights learns to name edits, before any rating is seen.

In: sources, instructions and exact edits. The model reads the two images and predicts the words of the instruction (language-model
loss over the tied token embedding). It plays the part that web pretraining plays for a published backbone, and is refused on one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reward.config import PretrainingConfig
from reward.inputs.batch import Batch
from reward.inputs.sample import EditSample
from reward.model.backbone import encode
from reward.model.model import RewardModel
from reward.trainer.loop import Metrics, batch_order, optimise, rank_share


class Captioner(nn.Module):
    """The backbone alone, with the loss of predicting the instruction: Batch -> summed loss, number of words."""

    def __init__(self, model: RewardModel) -> None:
        super().__init__()
        self.backbone = model.backbone
        self.reward_token = model.prompt.reward_token
        self.reward_vectors = model.reward_embedding.detach()

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Cross entropy of the words and the closing reward token, summed over the batch; how many they are."""
        before = batch.words - 1
        states = encode(self.backbone, batch, keep=before, reward_vectors=self.reward_vectors, reward_token=self.reward_token)
        embedding: Any = self.backbone.get_input_embeddings()
        logits = F.linear(states, embedding.weight)  # [word, vocabulary]
        return F.cross_entropy(logits.float(), batch.input_ids[batch.words], reduction="sum"), torch.tensor(len(batch.words))


def pretrain(
    *,
    model: RewardModel,
    config: PretrainingConfig,
    examples: Sequence[EditSample],
    checkpoint_dir: Path,
    on_metrics: Callable[[Metrics], None],
) -> list[Metrics]:
    """Caption exact edits for config.steps steps; changes the backbone in place and returns the metrics.

    Resumes as training does. Raises ValueError for a pretrained backbone.
    """
    if config.steps == 0:
        return []
    if model.config.backbone.pretrained is not None:
        raise ValueError(
            f"pretraining stands in for web pretraining, but the backbone {model.config.backbone.pretrained} had the real one; "
            "set pretraining.steps to 0"
        )
    shown = _in_words(model)
    presented = [shown.present(source=example.source, candidates=[example.edited], instruction=example.instruction) for example in examples]
    words = [len(item.tree.words) for item in presented]

    def losses(module: nn.Module, step: int) -> tuple[Tensor, dict[str, Tensor]]:
        order = batch_order(len(presented), config.batch_size, config.seed, step)
        summed, _ = module(shown.collate([presented[index] for index in rank_share(order)]))
        loss = summed / sum(words[index] for index in order)
        return loss, {"loss": loss}

    captioner = Captioner(shown)
    return optimise(
        module=captioner,
        parameter_groups=[{"params": list(captioner.parameters()), "lr": config.learning_rate}],
        config=config,
        steps=config.steps,
        task=repr(("pretraining", config, model.config, [example.instruction for example in examples])),
        losses=losses,
        validate=lambda done: {},
        checkpoint_dir=checkpoint_dir,
        on_metrics=on_metrics,
    )


def _in_words(model: RewardModel) -> RewardModel:
    """The same backbone and vocabulary under the prompt `words`, whose words the stand-in predicts."""
    presentation = model.config.presentation
    if presentation.prompt == "words":
        return model
    plain = presentation.model_copy(update={"prompt": "words", "rubrics": None})
    config = model.config.model_copy(update={"presentation": plain})
    return RewardModel(config=config, backbone=model.backbone, tokenizer=model.tokenizer).to(model.device)
