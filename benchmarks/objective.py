"""Which objective trains the best comparison? Variants against today's default, on the toy world, over several seeds.

    python benchmarks/objective.py --seeds 0 1 2 3 4

Each seed has its own scenes, candidates, ratings, initial weights and warm-up (sizes of demo-small.yaml); all variants of a seed start from
the warmed-up model and see the same groups in the same order. Held out are 150 groups to fit a comparison on and 300 to measure on.

The rule was written down before any variant was measured:

- Primary figure: mean log-likelihood of the raters' three outcomes (a better, equal, b better) of the overall score over the pairs of the
  300 groups. P is `reward.model.comparison`'s. A loss without ties gets its threshold from the 150 groups, as train-reward fits it (there on
  30 groups); a loss that learns thresholds uses what it learnt in training, and nothing held out.
- A variant helps when the 95 % t interval of its paired difference to today's default lies above 0, no interval of a difference lies on the
  bad side of 0 for pair accuracy against ground truth, three-way accuracy or calibration error, and the primary difference stays above 0
  when scale and threshold of both comparisons are refitted on the 150 groups. The last part is what a sceptic asks: a gain that one
  temperature removes is no better model.
- All else is reported and decides nothing. `sigma adds` is the evaluation's figure (halves by P against halves by margin). `sigma, in log P`
  is what the likelihood loses when every edit gets the average sigma, scale and threshold refitted both times.
- Calibration error: confidence in the most likely of the three outcomes against how often it came true, in ten bins.

Writes the table into benchmarks/RESULTS.md between its markers; what was measured is kept in --runs and not measured again.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor, nn

from reward import EditSample, RatedGroup, RewardModel, build_preferences, pretrain
from reward.config import PresentationConfig, RewardModelConfig
from reward.evaluation.confidence import measure_confidence
from reward.evaluation.evaluate import predict
from reward.evaluation.metrics import Prediction, labelled_pairs, pair_accuracy
from reward.model.aggregation import aggregate
from reward.model.calibration import fit_tie_threshold, log_likelihood, outcome_columns
from reward.model.comparison import outcome_probabilities
from reward.trainer.loop import LossTerms, optimise
from reward.trainer.order import batch_order, derived_seed, epoch_shuffles
from reward.training.config import LossConfig, PretrainingConfig, TrainingConfig
from reward.training.losses import reward_loss, three_way, uncertainty
from reward.training.pretrain import Captioner
from reward.training.targets import loss_targets
from stages.annotate.config import SimulatedRaters
from stages.annotate.simulate import raters_of
from stages.config import WorldConfig
from stages.engine import images
from stages.train_reward.world import captioned
from stages.world import editors, flaws, items, raters
from stages.world.seeds import uniform

ROOT = Path(__file__).resolve().parent.parent
DIMENSIONS = ("instruction_following", "visual_quality")
WORLD = WorldConfig(size=32, kinds=("recolour", "remove", "background", "add"))
MODEL = RewardModelConfig(presentation=PresentationConfig(layout="clip", image_area=1024))
TRAINED, FITTED, MEASURED, CAPTIONS = 500, 150, 300, 1500
ANNOTATED = 7
WARM_UP = PretrainingConfig(steps=500, batch_size=32)
TRAINING = TrainingConfig(steps=250, groups_per_batch=16, learning_rate=1e-3)
THRESHOLD_RATE = 0.05

Noise = Literal["even", "by flaw"]


@dataclass(frozen=True)
class Variant:
    ties: bool = False
    captions: float = 0.0
    foreign: float = 0.0


VARIANTS = {
    "default": Variant(),
    "three-way": Variant(ties=True),
    "captions 0.1": Variant(captions=0.1),
    "captions 0.5": Variant(captions=0.5),
    "foreign 0.2": Variant(foreign=0.2),
    "foreign 0.5": Variant(foreign=0.5),
    "three-way, foreign 0.2": Variant(ties=True, foreign=0.2),
    "three-way, captions 0.1": Variant(ties=True, captions=0.1),
}


def rated_groups(seed: int, split: str, indices: range, noise: Noise) -> tuple[list[RatedGroup], list[RatedGroup]]:
    """Groups as rated, and with the ground truth as labels; every pair once, ties without label."""
    rated, true = [], []
    chosen = [(name, number) for name in editors.EDITORS for number in (0, 1)]
    for index in indices:
        item = items.item(seed, split, index, kinds=WORLD.kinds, jitter=WORLD.jitter)
        renders = flaws.renders_of(item, WORLD.size)
        group = f"{seed}-{split}-{index}"
        drawn = sorted(chosen, key=lambda c: uniform("annotate", seed, group, *c))[:ANNOTATED]
        made = [editors.edit(item, WORLD.size, name, number, renders) for name, number in drawn]
        ids = tuple(f"{group}-{name}-{number}" for name, number in drawn)
        people = raters_of(group, SimulatedRaters(), seed)

        def score(candidate: str, dimension: str, level: int, flaw: str) -> float:
            deviation = raters.NOISE_DEVIATION if noise == "even" else raters.deviation(flaw)
            return statistics.mean(raters.rate(name, candidate, dimension, level, seed, noise=deviation) for name in people)

        truth = [(e.instruction_following_level, e.visual_quality_level) for e in made]
        kinds = [(e.if_flaw, e.vq_flaw) for e in made]
        scores = [
            {d: score(c, d, level, flaw) for d, level, flaw in zip(DIMENSIONS, ls, fs, strict=True)}
            for c, ls, fs in zip(ids, truth, kinds, strict=True)
        ]
        levels = [dict(zip(DIMENSIONS, map(float, ls), strict=True)) for ls in truth]
        pictures = tuple(images.png(e.image) for e in made)
        common = (group, images.png(renders.source), item.instruction, ids, pictures)
        for found, labels in ((rated, scores), (true, levels)):
            found.append(RatedGroup(*common, tuple(labels), tuple(build_preferences(labels, DIMENSIONS, "off")), task=item.kind))
    return rated, true


def disentangled(group: RatedGroup) -> RatedGroup:
    """Complementary ties as two rows with opposite labels: what the default learns from."""
    return replace(group, preferences=tuple(build_preferences(group.scores, DIMENSIONS, "opposed")))


class Learner(nn.Module):
    """A reward model, and the thresholds of its comparisons (softplus of `raw`): overall and per dimension."""

    def __init__(self, model: RewardModel) -> None:
        super().__init__()
        self.model = model
        self.captioner = Captioner(model)
        self.raw = nn.Parameter(torch.zeros(1 + len(DIMENSIONS)))

    @property
    def thresholds(self) -> Tensor:
        return nn.functional.softplus(self.raw)


def trained(model: RewardModel, variant: Variant, groups: list[RatedGroup], captions: list[EditSample], seed: int) -> Learner:
    learner = Learner(model)
    groups = groups if variant.ties else [disentangled(group) for group in groups]
    kind = LossConfig(kind="bradley_terry_ties") if variant.ties else LossConfig()
    prepared = [model.prepare(source=g.source, candidates=g.candidates, instruction=g.instruction) for g in groups]
    shown = [model.prepare(source=c.source, candidates=[c.edited], instruction=c.instruction) for c in captions] if variant.captions else []
    config = TRAINING.model_copy(update={"seed": seed})
    order = batch_order(len(groups), config.groups_per_batch or 0, epoch_shuffles(seed))
    caption_order = batch_order(len(captions), 32, epoch_shuffles(derived_seed(seed, "captions")))

    def objective(_: nn.Module, step: int) -> LossTerms:
        batch = order(step)
        samples = [prepared[index] for index in batch]
        rated = [groups[index] for index in batch]
        extra, pairs = foreign_rows(model, rated, prepared_of=None, seed=seed, step=step) if variant.foreign else ([], [])
        output = model(model.collate(samples + extra))
        rows = sum(len(g.candidates) for g in rated)
        targets = loss_targets(rated, DIMENSIONS, kind)
        mean, sigma = output.mean[:rows], output.sigma[:rows]
        if variant.ties:
            mu, deviation = aggregate(mean, sigma, "mean")
            means, sigmas = torch.cat([mu[:, None], mean], 1), torch.cat([deviation[:, None], sigma], 1)
            a, b = targets.a, targets.b
            terms = three_way(means[a], sigmas[a], means[b], sigmas[b], targets.labels, learner.thresholds).mean(0)
            loss = terms[0] + terms[1:].mean()
        else:
            loss = reward_loss(mean, sigma, targets, kind, "mean").total
        if pairs:
            a, b = torch.tensor(pairs).T
            m, s = output.mean[:, 0], output.sigma[:, 0]
            if variant.ties:
                negative = three_way(m[a], s[a], m[b], s[b], torch.ones(len(a)), learner.thresholds[1])
            else:
                negative = uncertainty(m[a], s[a], m[b], s[b], torch.ones(len(a)))
            loss = loss + variant.foreign * negative.mean()
        if variant.captions:
            words, count = learner.captioner(model.collate([shown[index] for index in caption_order(step)]))
            loss = loss + variant.captions * words / count
        return loss, {"loss": loss}

    with tempfile.TemporaryDirectory() as folder:
        optimise(
            module=learner,
            parameter_groups=[
                {"params": list(model.parameters()), "lr": config.learning_rate},
                {"params": [learner.raw], "lr": THRESHOLD_RATE, "weight_decay": 0.0},
            ],
            config=config.model_copy(update={"checkpoint_every": 10**9}),
            steps=config.steps or 0,
            warmup_steps=round(config.warmup_ratio * (config.steps or 0)),
            objective=objective,
            task="objective",
            checkpoint_dir=Path(folder),
            report_every=10**9,
            on_metrics=lambda metrics: print(metrics, flush=True),
        )
    return learner


def foreign_rows(model: RewardModel, rated: Sequence[RatedGroup], *, prepared_of: None, seed: int, step: int):
    """Of each group one edit that people rated 3 or better in instruction following, under another group's instruction, or beside another
    group's source, in turn. Extra samples, and pairs (row of the edit, row of its foreign copy)."""
    extra, pairs = [], []
    rng = np.random.default_rng(derived_seed(seed, "foreign", step) % 2**63)
    rows = sum(len(g.candidates) for g in rated)
    first = 0
    for number, group in enumerate(rated):
        good = [i for i, score in enumerate(group.scores) if score[DIMENSIONS[0]] >= 3]
        others = [g for g in rated if g.instruction != group.instruction and g.source != group.source]
        if good and others:
            i, other = good[rng.integers(len(good))], others[rng.integers(len(others))]
            swapped = (group.source, other.instruction) if number % 2 else (other.source, group.instruction)
            extra.append(model.prepare(source=swapped[0], candidates=[group.candidates[i]], instruction=swapped[1]))
            pairs.append((first + i, rows + len(pairs)))
        first += len(group.candidates)
    return extra, pairs


@dataclass(frozen=True)
class Compared:
    """Pairs as one head sees them, [pair] each; label: 1, 0, or NaN for a tie."""

    margin: np.ndarray
    sigma_a: np.ndarray
    sigma_b: np.ndarray
    label: np.ndarray

    def log_p(self, threshold: float, scale: float = 1.0) -> float:
        p = outcome_probabilities(scale * self.margin, scale * self.sigma_a, scale * self.sigma_b, threshold=threshold)
        return float(log_likelihood(p, outcome_columns(self.label)).mean())

    def fitted(self) -> tuple[float, float]:
        """Threshold and scale of the greatest likelihood."""
        start = [np.log(max(0.05, fit_tie_threshold(self.margin, self.sigma_a, self.sigma_b, self.label))), 0.0]
        found = minimize(
            lambda x: -self.log_p(np.exp(x[0]), np.exp(x[1])), start, method="Nelder-Mead", options={"xatol": 1e-3, "fatol": 1e-6}
        )
        return float(np.exp(found.x[0])), float(np.exp(found.x[1]))

    def level(self, sigma: float) -> Compared:
        return Compared(self.margin, np.full_like(self.sigma_a, sigma), np.full_like(self.sigma_b, sigma), self.label)


def compared(groups: Sequence[RatedGroup], predictions: Sequence[Prediction]) -> list[Compared]:
    """Overall, then the dimensions."""
    columns: list[list[tuple[float, float, float, float]]] = [[] for _ in range(1 + len(DIMENSIONS))]
    for group, p in zip(groups, predictions, strict=True):
        means = np.concatenate([p.overall_mean[:, None], p.mean], 1)
        sigmas = np.concatenate([p.overall_sigma[:, None], p.sigma], 1)
        for preference in group.preferences:
            labels = (preference.overall, *preference.dimensions)
            for head, label in enumerate(labels):
                a, b = preference.a, preference.b
                columns[head].append(
                    (means[a, head] - means[b, head], sigmas[a, head], sigmas[b, head], np.nan if label is None else label)
                )
    return [Compared(*np.array(column).T) for column in columns]


def measured(learner: Learner, variant: Variant, fit: list[RatedGroup], test: list[RatedGroup], true: list[RatedGroup]) -> dict[str, Any]:
    model = learner.model.eval()

    def scored(groups: list[RatedGroup]) -> list[Prediction]:
        return predict(
            model=model, prepared=(model.prepare(source=g.source, candidates=g.candidates, instruction=g.instruction) for g in groups)
        )

    fit_heads = compared(fit, scored(fit))
    predictions = scored(test)
    heads = compared(test, predictions)
    learnt = learner.thresholds.tolist()
    own = learnt if variant.ties else [fit_tie_threshold(h.margin, h.sigma_a, h.sigma_b, h.label) for h in fit_heads]
    found: dict[str, Any] = {"thresholds": own}
    for name, h, f, t in zip(("overall", *DIMENSIONS), heads, fit_heads, own, strict=True):
        threshold, scale = f.fitted()
        average = float(np.sqrt((f.sigma_a**2 + f.sigma_b**2).mean() / 2))
        flat_t, flat_s = f.level(average).fitted()
        p = outcome_probabilities(h.margin, h.sigma_a, h.sigma_b, threshold=t)
        outcome = outcome_columns(h.label)
        right, confidence = p.argmax(1) == outcome, p.max(1)
        bins = np.clip((confidence * 10).astype(int), 0, 9)
        ece = sum(abs((confidence - right)[bins == b].sum()) for b in range(10)) / len(right)
        found[name] = {
            "log_p": h.log_p(t),
            "log_p_refitted": h.log_p(threshold, scale),
            "log_p_level_sigma": h.level(average).log_p(flat_t, flat_s),
            "scale": scale,
            "three_way": float(right.mean()),
            "ece": float(ece),
            "sigma_spread": float(np.std(np.log(h.sigma_a))),
            "accuracy": pair_accuracy(h.margin, h.label),
        }
    pairs = labelled_pairs(test, predictions)
    found["sigma_adds"] = measure_confidence(pairs, resamples=2).added.value
    for name, h in zip(("overall", *DIMENSIONS), compared(true, predictions), strict=True):
        found[name]["accuracy_truth"] = pair_accuracy(h.margin, h.label)
    found["sigma_adds_truth"] = measure_confidence(labelled_pairs(true, predictions), resamples=2).added.value
    return found


def warmed_up(seed: int, groups: list[RatedGroup], captions: list[EditSample], folder: Path) -> RewardModel:
    words = [g.instruction for g in groups] + [c.instruction for c in captions]
    model = RewardModel.from_config(MODEL, words, seed=seed)
    state = folder / "warm-up.pt"
    if state.exists():
        model.load_state_dict(torch.load(state, weights_only=True))
        return model
    with tempfile.TemporaryDirectory() as checkpoints:
        pretrain(
            model=model,
            config=WARM_UP.model_copy(update={"seed": seed}),
            examples=captions,
            checkpoint_dir=Path(checkpoints),
            on_metrics=lambda m: None,
        )
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), state)
    return model


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS))
    parser.add_argument("--noise", nargs="+", default=["even", "by flaw"])
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "objective")
    options = parser.parse_args()
    torch.set_num_threads(1)
    import time

    for seed in options.seeds:
        folder = options.runs / f"seed{seed}"
        captions = captioned(CAPTIONS, seed=seed, world=WORLD)
        for noise in options.noise:
            wanted = [n for n in options.variants if not (folder / f"{noise} {n}.json").exists()]
            if not wanted:
                continue
            t0 = time.process_time()
            train, _ = rated_groups(seed, "train", range(TRAINED), noise)
            held, true = rated_groups(seed, "validation", range(FITTED + MEASURED), noise)
            print("data", time.process_time() - t0, flush=True)
            model = warmed_up(seed, train, captions, folder)
            print("warm", time.process_time() - t0, flush=True)
            for name in wanted:
                t0 = time.process_time()
                learner = trained(copy.deepcopy(model), VARIANTS[name], train, captions, seed)
                t1 = time.process_time()
                result = measured(learner, VARIANTS[name], held[:FITTED], held[FITTED:], true[FITTED:])
                print(seed, noise, name, t1 - t0, time.process_time() - t1, json.dumps(result), flush=True)
                (folder / f"{noise} {name}.json").write_text(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
