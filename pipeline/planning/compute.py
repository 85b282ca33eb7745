"""Floating-point operations of the reward model for `pipeline plan`, or None where they are not known.

A model with sizes in the configuration is counted as 2 FLOP per parameter and token forward and three times that in training, without
attention. A pretrained one is rehearsed on the meta device (`reward.rehearsal`) where its sizes are known; nothing is assumed elsewhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from reward.config import BackboneConfig, HeadConfig, RewardModelConfig
from reward.training.config import LossConfig, TrainingConfig

RUBRIC_TOKENS, INSTRUCTION_TOKENS = 150, 20
"""Assumed length of the rubric of a dimension and of an instruction, where nothing is rehearsed."""
TRAINING_CANDIDATES_OF_A_PAIR = 2


@dataclass(frozen=True)
class Compute:
    """FLOP to train on one group or pair, to score a group without gradients, and to score one edit with its own source.

    method: how they were found, in words.
    """

    trained: float | None
    group: float | None
    edit: float | None
    method: str


def compute_of(model: RewardModelConfig, training: TrainingConfig, candidates: int) -> Compute:
    """Of a model and its training on groups of so many candidates, or on pairs."""
    if model.backbone.pretrained is not None:
        # Heads, aggregation and loss are less than a thousandth of it: one rehearsal serves all that differ in them.
        alike = model.model_copy(update={"heads": HeadConfig(), "aggregation": "mean"})
        return _rehearsed(alike.model_dump_json(), training.model_dump_json(), candidates)
    flop_per_token = 2 * parameters(model.backbone)
    trained = TRAINING_CANDIDATES_OF_A_PAIR if training.pairs_per_batch is not None else candidates
    return Compute(
        trained=3 * flop_per_token * tokens(model, trained),
        group=flop_per_token * tokens(model, candidates),
        edit=flop_per_token * tokens(model, 1),
        method="2 per parameter and token, attention left out",
    )


@lru_cache(maxsize=16)
def _rehearsed(model_json: str, training_json: str, candidates: int) -> Compute:
    from reward.rehearsal.gauge import RehearsalError
    from reward.rehearsal.meta_model import knows_sizes
    from reward.rehearsal.rehearse import rehearse_scoring, rehearse_training
    from reward.training.batches import batch_size

    model, training = RewardModelConfig.model_validate_json(model_json), TrainingConfig.model_validate_json(training_json)
    name = model.backbone.pretrained
    if not knows_sizes(model.backbone):
        return Compute(None, None, None, f"the sizes of {name} are not known here; see `pipeline rehearse`")
    try:
        step = rehearse_training(model, training, LossConfig(), candidates=candidates, ranks=batch_size(training))
        group, edit = (rehearse_scoring(model, sources=1, candidates=count, token_budget=1).figures.flop for count in (candidates, 1))
    except RehearsalError as error:
        return Compute(None, None, None, str(error))
    return Compute(step.whole.flop, group, edit, f"{name} rehearsed on the meta device, recomputation included; text: {step.text_from}")


def parameters(config: BackboneConfig) -> float:
    """Parameters of a backbone of the configuration's own sizes, embeddings left out."""
    kv = config.text_hidden * config.text_kv_heads // config.text_heads
    text = config.text_layers * (
        2 * config.text_hidden**2 + 2 * config.text_hidden * kv + 3 * config.text_hidden * config.text_intermediate
    )
    vision = config.vision_depth * (4 * config.vision_hidden**2 + 3 * config.vision_hidden * config.vision_intermediate)
    return text + vision


def tokens(config: RewardModelConfig, edits: int) -> int:
    """Language tokens of one source with some edits, as one tree; what inference keeps of the prompt is not counted."""
    side = config.backbone.patch_size * config.backbone.merge_size if config.backbone.pretrained is None else 28
    image = math.ceil(config.presentation.image_area / side**2)
    if config.presentation.layout == "clip":
        return edits * (image + INSTRUCTION_TOKENS)
    dimensions = len(config.dimensions)
    per_source, per_edit = {
        "words": (0, INSTRUCTION_TOKENS),
        "reference": (0, dimensions * (RUBRIC_TOKENS + INSTRUCTION_TOKENS)),
        "rubric_first": (INSTRUCTION_TOKENS, dimensions),
    }[config.presentation.prompt]
    return image + per_source + edits * (image + per_edit)
