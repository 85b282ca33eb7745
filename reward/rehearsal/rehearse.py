"""The training step and the scoring pass of a configuration, run on the meta device by the code that trains and scores.

One rank's batch of groups goes from `collate` to the loss and back; edits of separate sources go through a scoring pass in bfloat16. Groups
are made up: images of the configured area, as wide as high, and an instruction of INSTRUCTION_WORDS words. What is measured depends on
shapes only. Not run are the optimizer, the exchange between ranks, and reading and decoding of images.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields
from functools import partial

import torch
from PIL import Image
from torch import Tensor

from reward.config import RewardModelConfig
from reward.inputs.batch import Batch, PreparedSample, packed
from reward.inputs.device import on_device
from reward.inputs.groups import RatedGroup, build_preferences
from reward.model.model import RewardModel
from reward.rehearsal.gauge import Gauge, faults, half_precision, pairs_of
from reward.rehearsal.memory import Memory, memory_per_gpu
from reward.rehearsal.meta_model import build_meta_model
from reward.training.batches import batch_size
from reward.training.config import LossConfig, TrainingConfig
from reward.training.preference_pass import preference_pass, ready_to_learn
from reward.training.targets import loss_targets

INSTRUCTION_WORDS = 20
INSTRUCTION = " ".join(["word"] * INSTRUCTION_WORDS)


@dataclass(frozen=True)
class Figures:
    """What passes do. tokens: language tokens in their rows; patches: of images in the vision tower; flop: floating-point operations;
    kernels: launches, at least; peak: most bytes alive beside weights, their gradients and the optimizer's state.
    """

    passes: int
    edits: int
    tokens: int
    patches: int
    flop: float
    kernels: int
    peak: int


@dataclass(frozen=True)
class TrainingRehearsal:
    """One step of one rank.

    parameters: of the model; learning: those that learn, adapters included; groups: groups, or pairs, of that rank; forward, whole: of the
    step until the loss, and with the backward pass and what it computes again; memory: of a GPU.
    """

    sizes_from: str
    text_from: str
    parameters: int
    learning: int
    groups: int
    forward: Figures
    whole: Figures
    memory: Memory


@dataclass(frozen=True)
class ScoringRehearsal:
    """One pass without gradients over `edits` edits."""

    sizes_from: str
    text_from: str
    parameters: int
    figures: Figures


def rehearse_training(
    model: RewardModelConfig, training: TrainingConfig, loss: LossConfig, *, candidates: int, ranks: int
) -> TrainingRehearsal:
    """One step of the first rank. candidates: of a group; a pair has two.

    Raises RehearsalError for what would not run on a GPU or would make it wait, ValueError where the model's sizes are unknown.
    """
    built = build_meta_model(model, INSTRUCTION)
    learner = built.model
    ready_to_learn(learner, training)
    learner.to(torch.device("meta")).train()
    parameters = list(learner.parameters())
    total, learning = (sum(p.numel() for p in some) for some in (parameters, [p for p in parameters if p.requires_grad]))
    states = partial(memory_per_gpu, learner, training, ranks=ranks)
    half = training.precision == "bf16"
    if half and training.parallel == "fsdp" and ranks > 1:  # as gathered; see `reward.trainer.sharding`
        _in_half(learner)
    count = math.ceil(batch_size(training) / ranks)
    edits = 2 if training.pairs_per_batch is not None else candidates
    groups = [_group(number, edits, model.dimensions) for number in range(count)]
    counts = on_device(loss_targets(groups, model.dimensions, loss).counts(), learner.device)
    for parameter in parameters:  # a gradient is dropped when it is whole: states are counted apart, and with fsdp ranks keep a share
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(_drop_gradient)
    forwards, backwards = [], []
    rated = iter(groups)
    for samples in packed((_sample(learner, number, edits) for number in range(count)), training.token_budget):
        targets = loss_targets([next(rated) for _ in samples], model.dimensions, loss).to(learner.device)
        batch = learner.collate(samples)
        gauge = Gauge(pairs_of(batch))
        with faults("the training step"), half_precision(learner.heads) if half else nullcontext(), gauge:
            total_loss, _ = preference_pass(learner, loss, learner, batch, targets, counts, idle=False)
            forwards.append(_figures(gauge, batch))
            total_loss.backward()
            backwards.append(_figures(gauge, batch))
    forward, whole = _summed(forwards), _summed(backwards)
    return TrainingRehearsal(
        sizes_from=built.sizes_from,
        text_from=built.text_from,
        parameters=total,
        learning=learning,
        groups=count,
        forward=forward,
        whole=whole,
        memory=states(activations=whole.peak),
    )


def rehearse_scoring(model: RewardModelConfig, *, sources: int, candidates: int, token_budget: int) -> ScoringRehearsal:
    """A scoring pass in bfloat16 over so many sources with so many candidates each, or as many as fit into the budget of tokens.

    Raises as `rehearse_training` does.
    """
    built = build_meta_model(model, INSTRUCTION)
    scorer = built.model.eval()
    total = sum(parameter.numel() for parameter in scorer.parameters())
    _in_half(scorer)
    samples = next(packed((_sample(scorer, number, candidates) for number in range(sources)), token_budget))
    with faults("the scoring pass"), torch.no_grad():
        root = scorer.cached_root()
        batch = scorer.collate(samples, root_cached=root is not None)
        with Gauge(pairs_of(batch)) as gauge:
            scorer(batch, root)
    return ScoringRehearsal(built.sizes_from, built.text_from, total, _figures(gauge, batch))


def _sample(model: RewardModel, number: int, candidates: int) -> PreparedSample:
    """A source and its candidates in plain colours, all different, of the area that the model looks at."""
    side = math.ceil(math.sqrt(model.config.presentation.image_area))
    first = number * (candidates + 1)
    source, *edits = [
        Image.new("RGB", (side, side), (index % 256, index // 256 % 256, index // 65536)) for index in range(first, first + candidates + 1)
    ]
    return model.prepare(source=source, candidates=edits, instruction=INSTRUCTION)


def _group(number: int, candidates: int, dimensions: Sequence[str]) -> RatedGroup:
    """Ratings in which no pair ties. Its images are not read."""
    scores = tuple(dict.fromkeys(dimensions, float(candidate)) for candidate in range(candidates))
    return RatedGroup(
        source_id=str(number),
        source=b"",
        instruction=INSTRUCTION,
        candidate_ids=tuple(str(candidate) for candidate in range(candidates)),
        candidates=(b"",) * candidates,
        scores=scores,
        preferences=tuple(build_preferences(scores, dimensions)),
    )


def _in_half(model: RewardModel) -> None:
    """All weights but those of the heads in bfloat16; rotary frequencies stay float32."""
    for name, parameter in model.named_parameters():
        if not name.startswith("heads."):
            parameter.data = parameter.data.to(torch.bfloat16)


def _drop_gradient(parameter: Tensor) -> None:
    parameter.grad = None


def _figures(gauge: Gauge, batch: Batch) -> Figures:
    """What a gauge has counted so far."""
    patches = 0 if batch.vision is None else len(batch.vision.positions)
    return Figures(1, len(batch.reads), len(batch.input_ids), patches, gauge.flop, gauge.kernels, gauge.peak)


def _summed(passes: Sequence[Figures]) -> Figures:
    """Several passes one after another."""
    columns = {field.name: [getattr(one, field.name) for one in passes] for field in fields(Figures)}
    return Figures(**{name: max(values) if name == "peak" else sum(values) for name, values in columns.items()})
