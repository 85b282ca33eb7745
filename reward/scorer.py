"""Scoring edits: the one thing most users want of a reward model.

    scores = score(model=RewardModel.from_directory("runs/demo/train-reward/model"), samples=[EditSample(...), ...])

Each sample gets a Score, or the SampleError that says why it has none; a bad sample never costs its neighbours. Scores of edits of
the same source and instruction can be compared; `preference` gives the probability that one is better.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from reward.batch import Presented
from reward.losses import aggregate_mean
from reward.model import RewardModel
from reward.sample import EditSample, SampleError


@dataclass(frozen=True)
class Score:
    """A Gaussian per dimension, and of their mean; likert is on the raters' scale, None without calibration."""

    mean: dict[str, float]
    sigma: dict[str, float]
    overall_mean: float
    overall_sigma: float
    likert: dict[str, float] | None


def score(*, model: RewardModel, samples: Sequence[EditSample], batch_size: int = 64) -> list[Score | SampleError]:
    """Scores in the order of the samples.

    Samples of like length are batched together, within this call only, so equal calls give equal scores.
    """
    results: list[Score | SampleError | None] = [None] * len(samples)
    presented: list[tuple[int, Presented]] = []
    for index, sample in enumerate(samples):
        try:
            shown = model.present(source=sample.source, candidates=[sample.edited], instruction=sample.instruction)
        except SampleError as error:
            results[index] = error
        else:
            presented.append((index, shown))
    presented.sort(key=lambda item: (item[1].bytes + len(item[1].instruction), item[0]))
    was_training = model.training
    model.eval()
    with torch.no_grad():
        for start in range(0, len(presented), batch_size):
            part = presented[start : start + batch_size]
            output = model(model.collate([shown for _, shown in part]))
            mu, sigma = aggregate_mean(output.mean, output.sigma)
            rows = torch.cat([output.mean, output.sigma, mu[:, None], sigma[:, None]], dim=1).tolist()
            for (index, _), row in zip(part, rows, strict=True):
                results[index] = _score(model, row)
    model.train(was_training)
    return [result for result in results if result is not None]


def preference(a: Score, b: Score) -> float:
    """P(a is better than b), as the model was trained to predict it."""
    variance = a.overall_sigma**2 + b.overall_sigma**2
    return 1 / (1 + math.exp(-(a.overall_mean - b.overall_mean) / math.sqrt(1 + math.pi / 8 * variance)))


def _score(model: RewardModel, row: list[float]) -> Score:
    names = model.config.dimensions
    mean = dict(zip(names, row[: len(names)], strict=True))
    calibration = model.calibration
    return Score(
        mean=mean,
        sigma=dict(zip(names, row[len(names) : -2], strict=True)),
        overall_mean=row[-2],
        overall_sigma=row[-1],
        likert=None if calibration is None else {name: calibration.dimensions[name](mean[name]) for name in names},
    )
