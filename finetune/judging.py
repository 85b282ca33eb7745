"""Judging edits on a benchmark: one verdict per item, means by the conventions of VIEScore and GEdit-Bench, paired intervals.

A judge gives two scores in 0..10: semantic consistency SC (was the instruction carried out, and nothing else) and perceptual
quality PQ. An item's overall is sqrt(SC * PQ) (VIEScore, Ku et al. 2024, arXiv 2312.14867), averaged afterwards: it is a mean of
roots, not the root of means. GEdit-Bench (arXiv 2504.17761) averages inside each task and then over tasks, unweighted.
A call that failed has no score. It is counted and left out, and a second set of means takes it as 0; GEdit-Bench's own script
puts a random number in its place.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

import numpy as np

Status = Literal["ok", "refused", "unparsable", "api_error", "missing"]
FAILURES: tuple[Status, ...] = get_args(Status)[1:]
TASK_COVERAGE = 0.9  # share of judged items below which a task's mean is not to be trusted


@dataclass(frozen=True)
class BenchmarkItem:
    """What an editor was asked to do. `reference` is the exact edit, known only where the world is synthetic."""

    item_id: str
    task: str
    instruction: str
    source: np.ndarray  # uint8 [height, width, 3]
    reference: np.ndarray | None = None  # uint8, as source


@dataclass(frozen=True)
class Verdict:
    """A judge's answer on one item: both scores in 0..10 if the status is ok, else neither."""

    item_id: str
    task: str
    status: Status
    semantic_consistency: float | None = None
    perceptual_quality: float | None = None
    raw: str = ""

    def __post_init__(self) -> None:
        scores = (self.semantic_consistency, self.perceptual_quality)
        if self.status not in get_args(Status):
            raise ValueError(f"item {self.item_id!r}: status {self.status!r} is none of {get_args(Status)}")
        if self.status == "ok":
            if not all(score is not None and 0 <= score <= 10 for score in scores):
                raise ValueError(f"item {self.item_id!r}: an ok verdict needs two scores in 0..10, got {scores}")
        elif scores != (None, None):
            raise ValueError(f"item {self.item_id!r}: a verdict with status {self.status!r} has no scores, got {scores}")

    @property
    def overall(self) -> float | None:
        """sqrt(SC * PQ) in 0..10, None if the call failed."""
        if self.semantic_consistency is None or self.perceptual_quality is None:
            return None
        return math.sqrt(self.semantic_consistency * self.perceptual_quality)


class Judge(Protocol):
    """Anything that scores an edit. Name and revision pin it: scores of different revisions are not comparable."""

    name: str
    revision: str

    def judge(self, item: BenchmarkItem, edited: np.ndarray) -> Verdict:
        """Verdict on an edited uint8 image [height, width, 3]; a failed call is a status, never an exception or a guess."""
        ...


@dataclass(frozen=True)
class Means:
    """Mean scores in 0..10 over some items."""

    semantic_consistency: float
    perceptual_quality: float
    overall: float


@dataclass(frozen=True)
class Summary:
    """Means of one system on one benchmark.

    `over_items`: all judged items, each counting once. `over_tasks`: unweighted mean of the task means (GEdit-Bench); None if a
    task has no judged item. The `_failures_zero` pair counts failed calls as 0. `thin_tasks`: tasks of which less than
    90 % was judged; do not quote `over_tasks` beside other systems when there are any.
    """

    items: int
    judged: int
    failures: dict[Status, int]
    over_items: Means | None
    over_items_failures_zero: Means
    tasks: dict[str, Means | None]
    over_tasks: Means | None
    over_tasks_failures_zero: Means
    thin_tasks: tuple[str, ...]


@dataclass(frozen=True)
class Difference:
    """Mean difference b - a over paired items with a 95 % bootstrap interval."""

    mean: float
    low: float
    high: float
    items: int
    resamples: int


def summarise(verdicts: Sequence[Verdict]) -> Summary:
    """Means over items and over tasks, failures counted; ValueError without verdicts or for an item judged twice."""
    if not verdicts:
        raise ValueError("there are no verdicts to summarise")
    _by_item(verdicts)
    tasks: dict[str, list[Verdict]] = {}
    for verdict in sorted(verdicts, key=lambda verdict: (verdict.task, verdict.item_id)):
        tasks.setdefault(verdict.task, []).append(verdict)
    task_means = {task: _means(members) for task, members in tasks.items()}
    known = [means for means in task_means.values() if means is not None]
    statuses = Counter(verdict.status for verdict in verdicts)
    return Summary(
        items=len(verdicts),
        judged=statuses["ok"],
        failures={status: statuses[status] for status in FAILURES},
        over_items=_means(verdicts),
        over_items_failures_zero=_means_failures_zero(verdicts),
        tasks=task_means,
        over_tasks=_average(known) if len(known) == len(tasks) else None,
        over_tasks_failures_zero=_average([_means_failures_zero(members) for members in tasks.values()]),
        thin_tasks=tuple(
            task for task, members in tasks.items() if sum(verdict.status == "ok" for verdict in members) < TASK_COVERAGE * len(members)
        ),
    )


def paired_overall(a: Sequence[Verdict], b: Sequence[Verdict]) -> tuple[np.ndarray, np.ndarray]:
    """Overall scores [n] of two systems on the items that both have a score for, in the order of item ids.

    ValueError if the two were not judged on the same items.
    """
    of_a, of_b = _by_item(a), _by_item(b)
    if of_a.keys() != of_b.keys():
        odd = sorted(of_a.keys() ^ of_b.keys())
        raise ValueError(f"{len(odd)} items were judged for one system only, e.g. {odd[0]!r}; judge both on the same items")
    pairs = [(of_a[item_id].overall, of_b[item_id].overall) for item_id in sorted(of_a)]
    both = np.array([pair for pair in pairs if None not in pair], dtype=np.float64).reshape(-1, 2)
    return both[:, 0], both[:, 1]


def paired_bootstrap(a: Sequence[float] | np.ndarray, b: Sequence[float] | np.ndarray, *, seed: int, resamples: int = 10_000) -> Difference:
    """Mean of b - a and its 95 % percentile interval; items are resampled, so each keeps both its scores.

    ValueError if the two are not as long as each other or empty.
    """
    if len(a) != len(b) or not len(a):
        raise ValueError(f"paired scores are needed, got {len(a)} and {len(b)}")
    difference = np.asarray(b, dtype=np.float64) - np.asarray(a, dtype=np.float64)  # [n]
    generator = np.random.default_rng(seed)
    means = np.empty(resamples)
    for start in range(0, resamples, 1000):
        count = min(1000, resamples - start)
        means[start : start + count] = difference[generator.integers(0, len(difference), (count, len(difference)))].mean(1)
    low, high = np.quantile(means, [0.025, 0.975])
    return Difference(float(difference.mean()), float(low), float(high), len(difference), resamples)


def _by_item(verdicts: Iterable[Verdict]) -> dict[str, Verdict]:
    by_item: dict[str, Verdict] = {}
    for verdict in verdicts:
        if verdict.item_id in by_item:
            raise ValueError(f"item {verdict.item_id!r} was judged twice; keep one verdict per item")
        by_item[verdict.item_id] = verdict
    return by_item


def _means(verdicts: Iterable[Verdict]) -> Means | None:
    """Means over the judged items, None if there is none."""
    judged = [verdict for verdict in verdicts if verdict.status == "ok"]
    return _means_failures_zero(judged) if judged else None


def _means_failures_zero(verdicts: Sequence[Verdict]) -> Means:
    return _average(
        [Means(verdict.semantic_consistency or 0.0, verdict.perceptual_quality or 0.0, verdict.overall or 0.0) for verdict in verdicts]
    )


def _average(means: Sequence[Means]) -> Means:
    return Means(
        math.fsum(one.semantic_consistency for one in means) / len(means),
        math.fsum(one.perceptual_quality for one in means) / len(means),
        math.fsum(one.overall for one in means) / len(means),
    )
