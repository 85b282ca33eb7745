"""A model's (or a baseline's) predictions on rated groups, and one table of everything that is reported of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from reward.batch import Presented
from reward.config import TOKEN_BUDGET
from reward.groups import RatedGroup
from reward.inference import passes
from reward.metrics import (
    CalibrationBin,
    Interval,
    LabelledPairs,
    Prediction,
    accuracy_by_confidence,
    clustered_interval,
    correctness,
    expected_calibration_error,
    head_dimension_table,
    labelled_pairs,
    reliability,
)
from reward.model import RewardModel


def predict(*, model: RewardModel, presented: Sequence[Presented], token_budget: int = TOKEN_BUDGET) -> list[Prediction]:
    """Score presented groups, without gradients; the model's training mode is kept."""
    predictions: list[Prediction] = []
    for sets, output in passes(model=model, presented=presented, token_budget=token_budget):
        columns = [value.double().cpu().numpy() for value in vars(output).values()]
        start = 0
        for item in sets:
            stop = start + len(item.tree.reads)
            predictions.append(Prediction(*(column[start:stop] for column in columns)))
            start = stop
    return predictions


def predict_groups(*, model: RewardModel, groups: Sequence[RatedGroup], token_budget: int = TOKEN_BUDGET) -> list[Prediction]:
    """Decode and score groups, each candidate once. Raises SampleError for a damaged image."""
    presented = [model.present(source=group.source, candidates=group.candidates, instruction=group.instruction) for group in groups]
    return predict(model=model, presented=presented, token_budget=token_budget)


def from_scores(scores: Sequence[np.ndarray], dimensions: int) -> list[Prediction]:
    """Predictions of a baseline: one score per candidate, the same for every dimension, sigma 0."""
    return [
        Prediction(
            mean=np.repeat(values[:, None], dimensions, axis=1),
            sigma=np.zeros((len(values), dimensions)),
            overall_mean=values,
            overall_sigma=np.zeros(len(values)),
        )
        for values in (np.asarray(group, dtype=np.float64) for group in scores)
    ]


@dataclass(frozen=True)
class Evaluation:
    """Agreement with preferences; accuracies are over strict pairs, predicted ties count half, intervals are clustered by source.

    heads: accuracy of each head on each dimension [head, dimension]. by_task: overall accuracy per edit kind.
    """

    pairs: int
    strict_pairs: int
    accuracy: Interval
    dimensions: dict[str, Interval]
    by_task: dict[str, Interval]
    heads: list[list[float]]
    calibration_error: float
    calibration_bins: list[CalibrationBin]
    confident_half: float
    other_half: float


def evaluate(
    *,
    groups: Sequence[RatedGroup],
    predictions: Sequence[Prediction],
    dimensions: Sequence[str],
    bins: int = 10,
    resamples: int = 2000,
    seed: int = 0,
) -> Evaluation:
    """Everything reported about predictions on held-out groups. Raises ValueError when no pair is strict."""
    pairs = labelled_pairs(groups, predictions)

    def interval(margin: np.ndarray, label: np.ndarray, of: LabelledPairs) -> Interval:
        return clustered_interval(correctness(margin, label), of.source, resamples=resamples, seed=seed)

    by_task: dict[str, list[tuple[RatedGroup, Prediction]]] = {}
    for group, prediction in zip(groups, predictions, strict=True):
        by_task.setdefault(group.task, []).append((group, prediction))
    tasks = {}
    for task in sorted(by_task):
        part = labelled_pairs(*zip(*by_task[task], strict=True))
        if np.isfinite(part.overall).any():
            tasks[task] = interval(part.overall_margin, part.overall, part)
    confident, other = accuracy_by_confidence(pairs.probability, pairs.overall)
    return Evaluation(
        pairs=len(pairs.overall),
        strict_pairs=int(np.isfinite(pairs.overall).sum()),
        accuracy=interval(pairs.overall_margin, pairs.overall, pairs),
        dimensions={name: interval(pairs.margins[:, column], pairs.dimensions[:, column], pairs) for column, name in enumerate(dimensions)},
        by_task=tasks,
        heads=head_dimension_table(pairs).tolist(),
        calibration_error=expected_calibration_error(pairs.probability, pairs.overall, bins),
        calibration_bins=reliability(pairs.probability, pairs.overall, bins),
        confident_half=confident,
        other_half=other,
    )


def held_out_means(
    groups: Sequence[RatedGroup], predictions: Sequence[Prediction], dimensions: Sequence[str]
) -> tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray]]:
    """Raw means and ratings per dimension, candidate by candidate, as `fit_calibration` takes them."""
    means = {name: np.concatenate([p.mean[:, d] for p in predictions]) for d, name in enumerate(dimensions)}
    ratings = {name: np.array([score[name] for group in groups for score in group.scores]) for name in dimensions}
    return means, ratings
