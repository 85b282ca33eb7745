"""Results of an editor's benchmark: means per system by the published conventions, and paired differences between systems.

A benchmark names its headline: a mean over items, or the unweighted mean of its tasks' means (GEdit-Bench, arXiv 2504.17761). Intervals are
of the headline: items are resampled within their tasks where it is a mean over tasks. A judge's call that failed has no score. It is
counted and left out, and a second set of means takes it as 0; GEdit-Bench's own script puts a random number in its place. Where less than
90 % of a task was judged, there is no overall figure.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy.stats import bootstrap

from reward.evaluation.bootstrap import percentile_interval
from reward.evaluation.estimate import Estimate
from stages.evaluate_editor.verdict import JudgedEdit

TASK_COVERAGE = 0.9
"""Share of judged items below which a task's mean is not to be trusted."""
Groups = list[np.ndarray]
"""Values [item] that are averaged; the groups' means are averaged in turn. NaN where an item has no value."""


@dataclass(frozen=True)
class Convention:
    """How a benchmark averages. ``tasks``: those that it has, where it says so; ``resamples`` and ``seed``: of the bootstrap."""

    averaging: Literal["items", "tasks"]
    tasks: tuple[str, ...] = ()
    resamples: int = 10_000
    seed: int = 0


def summarise(edits: Sequence[JudgedEdit], convention: Convention) -> dict[str, Any]:
    """Figures of one system, JSON-able; None where there is no figure.

    Per sub-score its mean; ``overall``, the headline, with its 95 % interval (``low``, ``high``); ``over_items`` and ``over_tasks``: both
    means of the overall score, one of which is the headline; ``per_task``. All but the last are None where a task has too few verdicts.
    Where calls failed: how many of which status, the means with failures as 0, and ``thin_tasks``, of which less than 90 % was judged.
    Raises ``ValueError`` for an item that was judged twice.
    """
    tasks = _tasks(edits, convention)
    ok = [edit for edit in edits if edit.verdict.status == "ok"]
    scores = {task: [_overall(edit) for edit in of_task] for task, of_task in tasks.items()}
    thin = _thin(scores)
    per_task = {task: number(_mean(values)) for task, values in scores.items()}
    names = ok[0].verdict.scores if ok else ()
    found: dict[str, Estimate] = {
        name: Estimate(_headline(edits, convention, lambda edit, name=name: edit.verdict.scores.get(name))) for name in names
    }
    found |= {"overall": replace(interval(_groups(edits, convention, _overall), convention), value=_headline(edits, convention, _score))}
    found |= {
        "over_items": Estimate(_mean([_overall(edit) for edit in edits])),
        "over_tasks": Estimate(_mean([_mean(values) for values in scores.values()], complete=True)),
    }
    if thin:
        found = dict.fromkeys(found, Estimate(math.nan))
    figures = {name: number(one.value) for name, one in found.items()} | {
        "low": found["overall"].low,
        "high": found["overall"].high,
        "n": len(ok),
        "failed": len(edits) - len(ok),
        "per_task": per_task,
    }
    if not thin and len(ok) == len(edits):
        return figures
    as_zero = {task: [0.0 if math.isnan(score) else score for score in values] for task, values in scores.items()}
    return figures | {
        "failures": dict(Counter(edit.verdict.status for edit in edits if edit.verdict.status != "ok")),
        "overall_failures_zero": number(_mean([score for values in as_zero.values() for score in values])),
        "over_tasks_failures_zero": number(_mean([_mean(values) for values in as_zero.values()], complete=True)),
        "thin_tasks": thin,
    }


def difference(a: Sequence[JudgedEdit], b: Sequence[JudgedEdit], convention: Convention) -> Estimate:
    """Headline of b - a over the items judged for both; items are resampled, so each keeps both its scores.

    Not defined where less than 90 % of a task was judged for both. Raises ``ValueError`` where the two were not given the same items.
    """
    pairs = _pairs(a, b, convention)
    values = {task: [_overall(y) - _overall(x) for x, y in of_task] for task, of_task in pairs.items()}
    thin = _thin(values)
    if thin:
        return Estimate(math.nan, note=f"less than {TASK_COVERAGE:.0%} of {thin[0]} was judged for both")
    if convention.averaging == "items":
        ordered = {x.key: _overall(y) - _overall(x) for of_task in pairs.values() for x, y in of_task}
        return interval([np.array([ordered[key] for key in sorted(ordered)])], convention)
    return interval([np.array(of_task) for of_task in values.values()], convention)


def wins(a: Sequence[JudgedEdit], b: Sequence[JudgedEdit], convention: Convention) -> dict[str, list[int]]:
    """Per task, on how many items b has a higher overall score than a, the same, and a lower one; of the items judged for both."""
    counted = {}
    for task, of_task in _pairs(a, b, convention).items():
        signs = Counter(np.sign(_overall(y) - _overall(x)) for x, y in of_task if not math.isnan(_overall(x) + _overall(y)))
        counted[task] = [signs[1.0], signs[0.0], signs[-1.0]]
    return counted


def interval(groups: Groups, convention: Convention) -> Estimate:
    """Mean of the groups' means with its percentile interval, resampled within groups.

    Not defined where a group has no value; without an interval where one has a single value, whose spread is not known.
    """
    groups = [values[~np.isnan(values)] for values in groups]
    n = sum(map(len, groups))
    if not groups or not all(map(len, groups)):
        return Estimate(math.nan, n=n)
    value = sum(float(values.mean()) for values in groups) / len(groups)
    if min(map(len, groups)) == 1:
        return Estimate(value, n=n, note="one item alone has no spread to resample")

    def mean(*samples: np.ndarray, axis: int = -1) -> np.ndarray:
        return np.sum([sample.mean(axis=axis) for sample in samples], axis=0) / len(groups)

    rng = np.random.default_rng(convention.seed)
    found = bootstrap(groups, mean, n_resamples=convention.resamples, batch=1000, method="percentile", vectorized=True, rng=rng)
    return replace(percentile_interval(value, found.bootstrap_distribution), n=n)


def number(value: float) -> float | None:
    """For JSON, which has no NaN."""
    return None if math.isnan(value) else value


def _overall(edit: JudgedEdit) -> float:
    """NaN for a failed call."""
    return math.nan if edit.verdict.overall is None else edit.verdict.overall


def _score(edit: JudgedEdit) -> float | None:
    return edit.verdict.overall


def _headline(edits: Sequence[JudgedEdit], convention: Convention, score: Callable[[JudgedEdit], float | None]) -> float:
    groups = _groups(edits, convention, lambda edit: math.nan if score(edit) is None else float(score(edit) or 0.0))
    return _mean([_mean(values.tolist()) for values in groups], complete=True)


def _groups(edits: Sequence[JudgedEdit], convention: Convention, score: Callable[[JudgedEdit], float]) -> Groups:
    """Scores by task, or of all items; in the order of item ids, so that the order of the edits does not matter."""
    ordered = sorted(edits, key=lambda edit: edit.key)
    groups = [ordered] if convention.averaging == "items" else list(_tasks(ordered, convention).values())
    return [np.array([score(edit) for edit in group], dtype=np.float64) for group in groups]


def _tasks(edits: Sequence[JudgedEdit], convention: Convention) -> dict[str, list[JudgedEdit]]:
    """Edits by task, those of the benchmark first. Raises ``ValueError`` for an item that was judged twice."""
    keys = Counter(edit.key for edit in edits)
    twice = next((key for key, times in keys.items() if times > 1), None)
    if twice is not None:
        raise ValueError(f"item {twice[0]!r} was judged twice in {twice[1]}; keep one verdict per item")
    found: dict[str, list[JudgedEdit]] = {task: [] for task in convention.tasks}
    for edit in edits:
        found.setdefault(edit.task, []).append(edit)
    return found


def _pairs(a: Sequence[JudgedEdit], b: Sequence[JudgedEdit], convention: Convention) -> dict[str, list[tuple[JudgedEdit, JudgedEdit]]]:
    """Both systems' edits of each item, by task, in the order of item ids."""
    tasks, others = _tasks(sorted(a, key=lambda edit: edit.key), convention), {edit.key: edit for edit in b}
    odd = sorted({edit.key for edit in a} ^ others.keys())
    if odd:
        raise ValueError(f"{len(odd)} items were judged for one system only, e.g. {odd[0][0]!r}; judge both on the same items")
    return {task: [(edit, others[edit.key]) for edit in of_task] for task, of_task in tasks.items()}


def _thin(values: Mapping[str, Sequence[float]]) -> list[str]:
    """Tasks without items, and those of which too few have a value."""
    return sorted(
        task
        for task, of_task in values.items()
        if not of_task or sum(not math.isnan(one) for one in of_task) < TASK_COVERAGE * len(of_task)
    )


def _mean(values: Sequence[float], *, complete: bool = False) -> float:
    """Of those that are not NaN; NaN without any, and, where they must be ``complete``, for one that is."""
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known and (len(known) == len(values) or not complete) else math.nan
