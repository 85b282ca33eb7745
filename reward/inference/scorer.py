"""Scoring edits: the one thing most users want of a reward model.

    model = RewardModel.load("runs/demo/train-reward/model")
    one = score_one(model=model, source="before.png", instruction="make the sky red", edited="after.png")
    many = score(model=model, samples=[EditSample(...), ...])

Each sample gets a Score, or the SampleError that says why it has none; a bad sample does not affect its neighbours. Scores of edits of
the same source and instruction can be compared; `better` gives the probabilities.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch

from reward.config import TOKEN_BUDGET
from reward.inference.passes import Inference, MemoryNeedError, PassStats
from reward.inputs.batch import PreparedSample
from reward.inputs.sample import EditSample, ImageInput, SampleError
from reward.model.comparison import OutcomeProbabilities, compare
from reward.model.model import RewardModel, RewardOutput


@dataclass(frozen=True)
class Score:
    """A Gaussian per dimension, and of their aggregate.

    likert: on the raters' scale, per dimension, None without calibration. tie_threshold: from the calibration too, for `better`.
    """

    mean: dict[str, float]
    sigma: dict[str, float]
    overall_mean: float
    overall_sigma: float
    likert: dict[str, float] | None
    tie_threshold: float | None


def score_one(*, model: RewardModel, source: ImageInput, instruction: str, edited: ImageInput) -> Score:
    """The score of one edit. Raises SampleError when it cannot be judged."""
    (result,) = score(model=model, samples=[EditSample(source, instruction, edited)])
    if isinstance(result, SampleError):
        raise result
    return result


def score(*, model: RewardModel, samples: Iterable[EditSample], token_budget: int = TOKEN_BUDGET) -> list[Score | SampleError]:
    """Scores in the order of the samples; equal calls give equal scores."""
    return list(score_stream(model=model, samples=samples, token_budget=token_budget))


def score_stream(*, model: RewardModel, samples: Iterable[EditSample], token_budget: int = TOKEN_BUDGET) -> Iterator[Score | SampleError]:
    """As `score`, for an iterator of any length: memory contains about one pass of `token_budget` tokens.

    Samples that follow each other with the same source and instruction share the source's part of the pass.
    """
    shown = model.processor.prepare_each(samples)
    return score_prepared(inference=Inference(model, token_budget), prepared=shown)


def score_prepared(
    *, inference: Inference, prepared: Iterable[PreparedSample | SampleError], on_pass: Callable[[PassStats], None] = lambda _: None
) -> Iterator[Score | SampleError]:
    """Yield one result per edit, in the order given. An error in the input is yielded unchanged."""
    waiting: deque[PreparedSample | SampleError] = deque()  # prepared, but not all of it scored
    found: deque[Score | SampleError] = deque()  # scores of the first samples in `waiting`, not yet yielded

    def sound() -> Iterator[PreparedSample]:
        for item in prepared:
            waiting.append(item)
            if isinstance(item, PreparedSample):
                yield item

    def ready() -> Iterator[Score | SampleError]:
        while waiting:
            first = waiting[0]
            if isinstance(first, SampleError):
                yield first
            elif len(found) >= len(first.tree.reads):
                yield from (found.popleft() for _ in range(len(first.tree.reads)))
            else:
                return
            waiting.popleft()

    for _, output in inference.passes(sound(), on_pass):
        found.extend([output] if isinstance(output, MemoryNeedError) else _rows(inference.model, output))
        yield from ready()
    yield from ready()
    assert not waiting and not found


def better(a: Score, b: Score) -> OutcomeProbabilities:
    """P(a better), P(tie), P(b better). Raises ValueError when the model's calibration has no tie threshold."""
    if a.tie_threshold is None:
        raise ValueError("the model's calibration has no tie threshold; train it with held-out ratings, or use `preference`")
    return compare(a.overall_mean - b.overall_mean, a.overall_sigma, b.overall_sigma, threshold=a.tie_threshold)


def preference(a: Score, b: Score) -> float:
    """P(a is better than b) where ties are not possible, as the model was trained to predict it."""
    return compare(a.overall_mean - b.overall_mean, a.overall_sigma, b.overall_sigma, threshold=0.0).a_better


def _rows(model: RewardModel, output: RewardOutput) -> Iterator[Score]:
    names, calibration = model.config.dimensions, model.calibration
    table = torch.cat([output.mean, output.sigma, output.overall_mean[:, None], output.overall_sigma[:, None]], dim=1)
    for row in table.tolist():
        mean = dict(zip(names, row[: len(names)], strict=True))
        yield Score(
            mean=mean,
            sigma=dict(zip(names, row[len(names) : -2], strict=True)),
            overall_mean=row[-2],
            overall_sigma=row[-1],
            likert=None if calibration is None else {name: calibration.dimensions[name](mean[name]) for name in names},
            tie_threshold=None if calibration is None else calibration.tie_threshold,
        )
