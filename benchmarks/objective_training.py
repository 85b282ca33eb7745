"""What `benchmarks/objective.py` trains: one toy world per seed, and the variants of the objective of the training on preferences.

The parts that the product does not have live here: the three-way likelihood with learnt thresholds, captions beside the ranking, negatives
with a foreign source or instruction.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reward import EditSample, RatedGroup, RewardModel, build_preferences, pretrain
from reward.config import PresentationConfig, RewardModelConfig
from reward.evaluation.evaluate import predict_groups
from reward.evaluation.metrics import Prediction
from reward.model.aggregation import aggregate
from reward.trainer.loop import LossTerms, optimise
from reward.trainer.order import batch_order, derived_seed, epoch_shuffles
from reward.training.config import LossConfig, PretrainingConfig, TrainingConfig
from reward.training.losses import reward_loss, uncertainty
from reward.training.pretrain import Captioner
from reward.training.quadrature import log_expected_sigmoid
from reward.training.targets import PairTargets, loss_targets
from stages.annotate.config import SimulatedRaters
from stages.annotate.simulate import raters_of
from stages.config import WorldConfig
from stages.engine import images
from stages.world import editors, flaws, items, raters
from stages.world.seeds import uniform

Noise = Literal["even", "by_flaw"]
DIMENSIONS = ("instruction_following", "visual_quality")
WORLD = WorldConfig(size=32, kinds=("recolour", "remove", "background", "add"))
MODEL = RewardModelConfig(presentation=PresentationConfig(layout="clip", image_area=1024))
WARM_UP = PretrainingConfig(steps=500, batch_size=32)
TRAINING = TrainingConfig(steps=250, groups_per_batch=16, learning_rate=1e-3, checkpoint_every=10**6)
EDITORS = tuple((name, number) for name in editors.EDITORS for number in (0, 1))
ANNOTATED = 7
THRESHOLD_RATE = 0.05
"""Peak learning rate of the thresholds."""


@dataclass(frozen=True)
class Variant:
    """three_way: likelihood of better, equal, worse; captions, foreign: weights of the loss of words, and of foreign negatives."""

    three_way: bool = False
    captions: float = 0.0
    foreign: float = 0.0


@dataclass(frozen=True)
class World:
    """Groups as rated and with the ground truth as labels, every pair once; known: what a model would say that knows quality and noise."""

    rated: list[RatedGroup]
    true: list[RatedGroup]
    known: list[Prediction]


def draw(seed: int, split: str, count: int, noise: Noise) -> World:
    """The first groups of a split: seven of twelve edits each, by the editors and raters of the toy world."""
    world = World([], [], [])
    for index in range(count):
        item = items.item(seed, split, index, kinds=WORLD.kinds, jitter=WORLD.jitter)
        renders = flaws.renders_of(item, WORLD.size)
        name = f"{seed}-{split}-{index}"
        chosen = sorted(EDITORS, key=lambda entry: uniform("annotate", seed, name, *entry))[:ANNOTATED]
        made = [editors.edit(item, WORLD.size, *entry, renders) for entry in chosen]
        ids = tuple(f"{name}-{editor}-{number}" for editor, number in chosen)
        levels = np.array([(edit.instruction_following_level, edit.visual_quality_level) for edit in made])
        names = [(edit.if_flaw, edit.vq_flaw) for edit in made]
        spread = np.array([[raters.NOISE_DEVIATION if noise == "even" else raters.deviation(flaw) for flaw in pair] for pair in names])
        people = raters_of(name, SimulatedRaters(), seed)
        scores = [
            [
                mean(raters.rate(person, one, dimension, int(levels[i, d]), seed, noise=spread[i, d]) for person in people)
                for d, dimension in enumerate(DIMENSIONS)
            ]
            for i, one in enumerate(ids)
        ]
        shown = (name, images.png(renders.source), item.instruction, ids, tuple(images.png(edit.image) for edit in made))
        for groups, labels in ((world.rated, scores), (world.true, levels.astype(float).tolist())):
            given = tuple(dict(zip(DIMENSIONS, row, strict=True)) for row in labels)
            groups.append(RatedGroup(*shown, given, tuple(build_preferences(given, DIMENSIONS, "off"))))
        overall = np.sqrt(np.square(spread).sum(1)) / 2
        world.known.append(Prediction(levels.astype(float), spread, levels.mean(1), overall))
    return world


def warmed_up(seed: int, groups: Sequence[RatedGroup], captions: Sequence[EditSample], file: Path) -> RewardModel:
    """A new model after the warm-up, which all variants of a seed start from; it is kept in the file."""
    words = [group.instruction for group in groups] + [caption.instruction for caption in captions]
    model = RewardModel.from_config(MODEL, words, seed=seed)
    if not file.exists():
        config = WARM_UP.model_copy(update={"seed": seed})
        with tempfile.TemporaryDirectory() as folder:
            pretrain(model=model, config=config, examples=captions, checkpoint_dir=Path(folder), on_metrics=lambda _: None)
        file.parent.mkdir(parents=True, exist_ok=True)
        torch.save(model.state_dict(), file)
    model.load_state_dict(torch.load(file, weights_only=True))
    return model


class Learner(nn.Module):
    """A reward model, its backbone as a captioner, and the thresholds of its comparisons, overall and per dimension."""

    def __init__(self, model: RewardModel) -> None:
        super().__init__()
        self.model = model
        self.captioner = Captioner(model)
        self.raw_thresholds = nn.Parameter(torch.zeros(1 + len(DIMENSIONS)))

    @property
    def thresholds(self) -> Tensor:
        """[1 + dimension], > 0."""
        return F.softplus(self.raw_thresholds)


def trained(
    model: RewardModel, variant: Variant, groups: Sequence[RatedGroup], captions: Sequence[EditSample], seed: int
) -> tuple[Callable[[Sequence[RatedGroup]], list[Prediction]], list[float] | None]:
    """Train the model in place on groups whose ties are whole. Returns what predicts, and the thresholds if they were learnt."""
    learner = Learner(model)
    loss = LossConfig(kind="bradley_terry_ties" if variant.three_way else "uncertainty")
    if not variant.three_way:  # the default learns from complementary ties as two opposed rows
        groups = [replace(group, preferences=tuple(build_preferences(group.scores, DIMENSIONS, "opposed"))) for group in groups]
    prepared = [model.prepare(source=group.source, candidates=group.candidates, instruction=group.instruction) for group in groups]
    named = [model.prepare(source=one.source, candidates=[one.edited], instruction=one.instruction) for one in captions]
    order = batch_order(len(groups), TRAINING.groups_per_batch or 0, epoch_shuffles(seed))
    caption_order = batch_order(len(named), WARM_UP.batch_size, epoch_shuffles(derived_seed(seed, "captions")))

    def objective(_: nn.Module, step: int) -> LossTerms:
        rated = [groups[index] for index in order(step)]
        negatives = foreign_copies(rated, seed, step) if variant.foreign else []
        copies = [model.prepare(source=c.source, candidates=[c.edited], instruction=c.instruction) for _, c in negatives]
        output = model(model.collate([*(prepared[index] for index in order(step)), *copies]))
        rows = sum(len(group.candidates) for group in rated)
        targets = loss_targets(rated, DIMENSIONS, loss)
        if variant.three_way:
            assert isinstance(targets, PairTargets)
            total = three_way_loss(output.mean[:rows], output.sigma[:rows], targets, learner.thresholds)
        else:
            total = reward_loss(output.mean[:rows], output.sigma[:rows], targets, loss, "mean").total
        if negatives:
            own, copy = torch.tensor([row for row, _ in negatives]), torch.arange(rows, rows + len(negatives))
            mu, sigma, won = output.mean[:, 0], output.sigma[:, 0], torch.ones(len(negatives))
            given = (mu[own], sigma[own], mu[copy], sigma[copy], won)
            total = (
                total + variant.foreign * (three_way(*given, learner.thresholds[1]) if variant.three_way else uncertainty(*given)).mean()
            )
        if variant.captions:
            summed, words = learner.captioner(model.collate([named[index] for index in caption_order(step)]))
            total = total + variant.captions * summed / words
        return total, {"loss": total}

    weights = [{"params": list(model.parameters())}, {"params": [learner.raw_thresholds], "lr": THRESHOLD_RATE, "weight_decay": 0.0}]
    steps = TRAINING.steps or 0
    with tempfile.TemporaryDirectory() as folder:
        optimise(
            module=learner,
            parameter_groups=[{"lr": TRAINING.learning_rate} | group for group in weights],
            config=TRAINING.model_copy(update={"seed": seed}),
            steps=steps,
            warmup_steps=round(TRAINING.warmup_ratio * steps),
            objective=objective,
            task="objective",
            checkpoint_dir=Path(folder),
            report_every=steps,
            on_metrics=lambda _: None,
        )
    return lambda held: predict_groups(model=model, groups=held), learner.thresholds.tolist() if variant.three_way else None


def three_way_loss(means: Tensor, sigmas: Tensor, targets: PairTargets, thresholds: Tensor) -> Tensor:
    """Of the aggregate, plus the mean over dimensions, as the default adds them up."""
    mu, sigma = aggregate(means, sigmas, "mean")
    means, sigmas = torch.column_stack([mu, means]), torch.column_stack([sigma, sigmas])
    a, b = targets.a, targets.b
    terms = three_way(means[a], sigmas[a], means[b], sigmas[b], targets.labels, thresholds).mean(0)  # [1 + dimension]
    return terms[0] + terms[1:].mean()


def three_way(mu_a: Tensor, sigma_a: Tensor, mu_b: Tensor, sigma_b: Tensor, target: Tensor, threshold: Tensor) -> Tensor:
    """-log P of the outcome as `reward.model.comparison` defines it: a preferred (target 1), b preferred (0), tie (0.5).

    P(tie) = (exp(2 t) - 1) E[sigmoid(z - t) sigmoid(-z - t)] (Rao and Kupper 1967, k = exp(t)), on 97 deviates around what adds most.
    """
    m, s = mu_a - mu_b, torch.hypot(sigma_a, sigma_b)
    a_wins, b_wins = log_expected_sigmoid(m - threshold, s), log_expected_sigmoid(-m - threshold, s)
    deviates = torch.linspace(-7, 7, 97)
    centre = (-m.sign() * torch.minimum((m.abs() - threshold).clamp(min=0) / s, s)).detach()[..., None]
    z, t = m[..., None] + s[..., None] * (deviates + centre), threshold[..., None]
    weights = torch.log_softmax(-deviates.square() / 2, dim=0) - centre * deviates - centre.square() / 2
    both = torch.logsumexp(weights + (F.logsigmoid(z - t) + F.logsigmoid(-z - t)), dim=-1)
    tie = both + 2 * threshold + torch.log(-torch.expm1(-2 * threshold))
    return -torch.where(target == 0.5, tie, target * a_wins + (1 - target) * b_wins)


def foreign_copies(rated: Sequence[RatedGroup], seed: int, step: int) -> list[tuple[int, EditSample]]:
    """Of each group one edit that raters gave 3 or more in instruction following, and its row: under another group's instruction in every
    second group, beside another group's source in the others."""
    rng = np.random.default_rng(derived_seed(seed, "foreign", step))
    found, first = [], 0
    for number, group in enumerate(rated):
        good = [i for i, score in enumerate(group.scores) if score[DIMENSIONS[0]] >= 3]
        others = [other for other in rated if other.instruction != group.instruction and other.source != group.source]
        if good and others:
            i, other = good[rng.integers(len(good))], others[rng.integers(len(others))]
            source, instruction = (group.source, other.instruction) if number % 2 else (other.source, group.instruction)
            found.append((first + i, EditSample(source, instruction, group.candidates[i])))
        first += len(group.candidates)
    return found
