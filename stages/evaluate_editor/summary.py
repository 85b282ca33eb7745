"""Results of an editor's benchmark: means per arm by the published conventions, and paired differences between arms.

GEdit-Bench (arXiv 2504.17761) averages inside each task and then over tasks, unweighted; a mean over items is given beside it. A judge's
call that failed has no score. It is counted and left out, and a second set of means takes it as 0. GEdit-Bench's own script puts a random
number in its place.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.stats import bootstrap

from reward.evaluation.bootstrap import percentile_interval
from reward.evaluation.estimate import Estimate
from stages.evaluate_editor.judges.verdict import JudgedEdit

TASK_COVERAGE = 0.9
"""Share of judged items below which a task's mean is not to be trusted."""


def summarise(edits: Sequence[JudgedEdit], *, seed: int, resamples: int) -> dict[str, Any]:
    """Figures of one arm, JSON-able. Where nothing was judged, means are None and sub-scores are left out.

    Per sub-score its mean over the judged items; ``overall`` with its 95 % interval (``low``, ``high``), resampled over items;
    ``over_tasks``: unweighted mean of ``per_task``, None if a task has no judged item. Where calls failed: how many of which status, the
    means with failures as 0, and ``thin_tasks``, of which less than 90 % was judged: then ``over_tasks`` does not compare with others.
    Raises ``ValueError`` for an item that was judged twice.
    """
    _by_item(edits)
    ok = [edit.verdict for edit in edits if edit.verdict.status == "ok"]
    overall = np.array([verdict.overall for verdict in ok], dtype=np.float64)
    interval = mean_interval(_in_order(edits), seed=seed, resamples=resamples)
    tasks: dict[str, list[float | None]] = {}
    for edit in edits:
        tasks.setdefault(edit.task, []).append(edit.verdict.overall)
    judged = {task: [score for score in scores if score is not None] for task, scores in tasks.items()}
    per_task = {task: _mean(scores) for task, scores in judged.items()}
    figures = {name: _mean([verdict.scores[name] for verdict in ok]) for name in (ok[0].scores if ok else ())} | {
        "overall": _mean(overall.tolist()),
        "low": interval.low,
        "high": interval.high,
        "n": len(ok),
        "failed": len(edits) - len(ok),
        "over_tasks": _mean(list(per_task.values())),
        "per_task": per_task,
    }
    if len(ok) == len(edits):
        return figures
    return figures | {
        "failures": dict(Counter(edit.verdict.status for edit in edits if edit.verdict.status != "ok")),
        "overall_failures_zero": math.fsum(overall) / len(edits),
        "over_tasks_failures_zero": _mean([math.fsum(judged[task]) / len(scores) for task, scores in tasks.items()]),
        "thin_tasks": sorted(task for task, scores in tasks.items() if len(judged[task]) < TASK_COVERAGE * len(scores)),
    }


def difference(a: Sequence[JudgedEdit], b: Sequence[JudgedEdit], *, seed: int, resamples: int) -> Estimate:
    """Mean of b - a in overall score over the items judged for both; items are resampled, so each keeps both its scores.

    Raises ``ValueError`` where the two were not given the same items.
    """
    if _by_item(a).keys() != _by_item(b).keys():
        odd = sorted(_by_item(a).keys() ^ _by_item(b).keys())
        raise ValueError(f"{len(odd)} items were judged for one arm only, e.g. {odd[0]!r}; judge both on the same items")
    return mean_interval(_in_order(b) - _in_order(a), seed=seed, resamples=resamples)


def mean_interval(values: np.ndarray, *, seed: int, resamples: int) -> Estimate:
    """Mean of [item] values that are not NaN with its percentile interval; not defined where all are."""
    values = values[~np.isnan(values)]
    if len(values) < 2:  # one value has no spread to resample
        value = float(values[0]) if len(values) else math.nan
        return Estimate(value, *([value, value] if len(values) else [None, None]), n=len(values))
    found = bootstrap((values,), np.mean, n_resamples=resamples, batch=1000, method="percentile", rng=np.random.default_rng(seed))
    return replace(percentile_interval(float(values.mean()), found.bootstrap_distribution), n=len(values))


def _mean(values: Sequence[float | None]) -> float | None:
    """None without values, or when a value is missing."""
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known and len(known) == len(values) else None


def _in_order(edits: Sequence[JudgedEdit]) -> np.ndarray:
    """Overall scores [item] in the order of item ids, which pairs two arms; NaN for a failed call."""
    by_item = _by_item(edits)
    return np.array([by_item[item_id].verdict.overall for item_id in sorted(by_item)], dtype=np.float64)


def _by_item(edits: Sequence[JudgedEdit]) -> dict[str, JudgedEdit]:
    by_item = {edit.item_id: edit for edit in edits}
    if len(by_item) < len(edits):
        item_id = Counter(edit.item_id for edit in edits).most_common(1)[0][0]
        raise ValueError(f"item {item_id!r} was judged twice; keep one verdict per item")
    return by_item
