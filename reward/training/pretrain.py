"""Warm-up (toy data only): a backbone with random weights learns to name edits, before it sees any rating.

In: sources, instructions and exact edits. The model reads the two images and predicts the words of the instruction (language-model loss
over the tied token embedding). A published backbone has learnt this from the web; for one, the warm-up is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reward.inputs.batch import Batch
from reward.inputs.sample import EditSample
from reward.model.backbone import encode
from reward.model.model import RewardModel
from reward.trainer.loop import LossTerms, Metrics, optimise
from reward.trainer.order import batch_order, epoch_shuffles
from reward.trainer.workers import rank_share
from reward.training.config import PretrainingConfig


class Captioner(nn.Module):
    """The backbone alone, with the loss of predicting the instruction: Batch -> summed loss, number of words."""

    def __init__(self, model: RewardModel) -> None:
        super().__init__()
        self.backbone = model.backbone
        self.reward_vectors = model.reward_embedding.detach()

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Cross entropy of the words and the closing reward token, summed over the batch; how many they are."""
        before = batch.words - 1
        states = encode(self.backbone, batch, keep=before, reward_vectors=self.reward_vectors)
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
            f"pretraining is a warm-up for random weights, but the backbone {model.config.backbone.pretrained} is pretrained; "
            "set pretraining.steps to 0"
        )
    shown = _in_words(model)
    prepared = [shown.prepare(source=example.source, candidates=[example.edited], instruction=example.instruction) for example in examples]
    words = [len(item.tree.words) for item in prepared]
    order = batch_order(len(prepared), config.batch_size, epoch_shuffles(config.seed))

    def captioning(module: nn.Module, step: int) -> LossTerms:
        batch = order(step)
        summed, _ = module(shown.collate([prepared[index] for index in rank_share(batch)]))
        loss = summed / sum(words[index] for index in batch)  # by the words of all workers
        return loss, {"loss": loss}

    captioner = Captioner(shown)
    return optimise(
        module=captioner,
        parameter_groups=[{"params": list(captioner.parameters()), "lr": config.learning_rate}],
        config=config,
        steps=config.steps,
        warmup_steps=round(config.warmup_ratio * config.steps),
        objective=captioning,
        task=repr(("pretraining", config, model.config, [example.instruction for example in examples])),
        checkpoint_dir=checkpoint_dir,
        report_every=config.log_every,
        on_metrics=on_metrics,
    )


def _in_words(model: RewardModel) -> RewardModel:
    """The same backbone and vocabulary under the prompt `words`, whose words the warm-up predicts."""
    presentation = model.config.presentation
    if presentation.prompt == "words":
        return model
    plain = presentation.model_copy(update={"prompt": "words", "rubrics": None})
    config = model.config.model_copy(update={"presentation": plain})
    return RewardModel(config=config, backbone=model.backbone, tokenizer=model.tokenizer).to(model.device)
