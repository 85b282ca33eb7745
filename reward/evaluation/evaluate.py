"""A model's (or a baseline's) predictions on rated groups, and one table of everything that is reported of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from reward.config import TOKEN_BUDGET
from reward.evaluation.bootstrap import clustered_interval
from reward.evaluation.confidence import Bin, CalibrationError, Confidence, calibration_error, measure_confidence, reliability
from reward.evaluation.estimate import Estimate
from reward.evaluation.metrics import LabelledPairs, Prediction, correctness, head_dimension_correctness, labelled_pairs
from reward.evaluation.outcomes import ThreeWay, measure_three_way
from reward.inference.passes import Inference, MemoryNeedError
from reward.inputs.batch import PreparedSample
from reward.inputs.groups import RatedGroup
from reward.inputs.loading import GroupLoader
from reward.model.calibration import log_likelihood
from reward.model.model import RewardModel


def predict(*, model: RewardModel, prepared: Iterable[PreparedSample], token_budget: int = TOKEN_BUDGET) -> list[Prediction]:
    """Score prepared groups, without gradients; the model's training mode is kept. Memory has those of about one pass.

    Raises MemoryNeedError where an edit does not fit.
    """
    outputs, edits = [], []

    def counted() -> Iterator[PreparedSample]:
        for item in prepared:
            edits.append(len(item.tree.reads))
            yield item

    for _, output in Inference(model, token_budget).passes(counted()):
        if isinstance(output, MemoryNeedError):
            raise output
        outputs.append([value.double().numpy() for value in vars(output).values()])
    columns = [np.concatenate(column) for column in zip(*outputs, strict=True)]
    ends = np.cumsum(edits[:-1], dtype=np.int64)
    return [Prediction(*group) for group in zip(*(np.split(column, ends) for column in columns), strict=True)]


def predict_groups(
    *, model: RewardModel, groups: Sequence[RatedGroup], token_budget: int = TOKEN_BUDGET, loader_workers: int = 0
) -> list[Prediction]:
    """Decode and score groups, each candidate once. Raises SampleError for a damaged image, ValueError for one that cannot be read.

    loader_workers: processes that read, decode and resize ahead of the model; with 0 this process does. They change no prediction.
    """
    loader = GroupLoader(model.processor, groups, workers=loader_workers)
    return predict(model=model, prepared=loader.in_order(), token_budget=token_budget)


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
    """Agreement with preferences. Accuracies are over strict pairs and predicted ties count half, unless named otherwise; intervals are
    clustered by source.

    log_likelihood: mean log P of the label over strict pairs, where ties are not possible. heads: accuracy of each head on each dimension
    [head][dimension]. An accuracy is None where no pair of its kind is strict. calibration_error, calibration_bins and three_way are over
    groups that no calibration was fitted on: None or empty where there are none, three_way also without a tie threshold.
    """

    pairs: int
    strict_pairs: int
    accuracy: Estimate
    accuracy_ties_wrong: Estimate
    log_likelihood: Estimate
    dimensions: dict[str, Estimate | None]
    by_task: dict[str, Estimate]
    heads: list[list[Estimate | None]]
    confidence: Confidence
    unseen_pairs: int
    calibration_error: CalibrationError | None
    calibration_bins: list[Bin]
    three_way: ThreeWay | None


def evaluate(
    *,
    groups: Sequence[RatedGroup],
    predictions: Sequence[Prediction],
    dimensions: Sequence[str],
    tie_threshold: float | None = None,
    calibrated_on: Collection[str] = (),
    resamples: int = 2000,
    seed: int = 0,
) -> Evaluation:
    """Everything reported about predictions on held-out groups.

    tie_threshold: of the model's calibration; calibrated_on: source ids of the groups that the calibration was fitted on.
    Raises ValueError for fewer than two strict pairs.
    """
    pairs = labelled_pairs(groups, predictions)
    interval = partial(_interval, resamples=resamples, seed=seed)
    right = correctness(pairs.overall_margin, pairs.overall)
    tasks = np.array([group.task for group in groups])[pairs.group]
    by_task = {task: interval(right[tasks == task], pairs.source[tasks == task]) for task in sorted(set(tasks.tolist()))}
    probability = np.stack([pairs.probability, 1 - pairs.probability], axis=1)
    likelihood = log_likelihood(probability, (pairs.overall < 0.5).astype(np.int64))
    heads = head_dimension_correctness(pairs)
    unseen = pairs.where(np.array([group.source_id not in calibrated_on for group in groups])[pairs.group])
    shown = (unseen.probability, unseen.overall, unseen.source)
    three_way = None
    if tie_threshold is not None and len(unseen.overall):
        three_way = measure_three_way(unseen, threshold=tie_threshold, resamples=resamples, seed=seed)
    return Evaluation(
        pairs=len(pairs.overall),
        strict_pairs=int(pairs.strict.sum()),
        accuracy=overall_accuracy(pairs, resamples=resamples, seed=seed),
        accuracy_ties_wrong=overall_accuracy(pairs, predicted_tie="wrong", resamples=resamples, seed=seed),
        log_likelihood=clustered_interval(np.where(pairs.strict, likelihood, np.nan), pairs.source, resamples=resamples, seed=seed),
        dimensions={name: interval(heads[:, column, column], pairs.source) for column, name in enumerate(dimensions)},
        by_task={task: value for task, value in by_task.items() if value is not None},
        heads=[[interval(heads[:, head, column], pairs.source) for column in range(len(dimensions))] for head in range(len(dimensions))],
        confidence=measure_confidence(pairs, resamples=resamples, seed=seed),
        unseen_pairs=len(unseen.overall),
        calibration_error=calibration_error(*shown, resamples=resamples, seed=seed),
        calibration_bins=reliability(*shown, resamples=resamples, seed=seed),
        three_way=three_way,
    )


def overall_accuracy(
    pairs: LabelledPairs, *, predicted_tie: Literal["half", "wrong"] = "half", resamples: int = 2000, seed: int = 0
) -> Estimate:
    """Accuracy over strict pairs of the overall label. Raises ValueError when no pair is strict."""
    values = correctness(pairs.overall_margin, pairs.overall, predicted_tie)
    return clustered_interval(values, pairs.source, resamples=resamples, seed=seed)


def _interval(values: np.ndarray, source: np.ndarray, *, resamples: int, seed: int) -> Estimate | None:
    return None if np.isnan(values).all() else clustered_interval(values, source, resamples=resamples, seed=seed)


def held_out_means(
    groups: Sequence[RatedGroup], predictions: Sequence[Prediction], dimensions: Sequence[str]
) -> tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray]]:
    """Raw means and ratings per dimension, candidate by candidate, as `fit_calibration` takes them."""
    means = {name: np.concatenate([p.mean[:, d] for p in predictions]) for d, name in enumerate(dimensions)}
    ratings = {name: np.array([score[name] for group in groups for score in group.scores]) for name in dimensions}
    return means, ratings
