"""The held-out evaluation of a reward model as plain values for ``evaluation.json``; docs/contracts.md says what each means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reward.evaluation.confidence import Bin, CalibrationError, Confidence
    from reward.evaluation.evaluate import Evaluation
    from reward.evaluation.metrics import Interval
    from reward.evaluation.outcomes import ThreeWay


def figures(result: Evaluation, dimensions: Sequence[str]) -> dict[str, Any]:
    """Everything measured against one kind of labels."""
    return {
        "pair_accuracy": {"overall": interval(result.accuracy) | {"n": result.strict_pairs}}
        | {name: _optional(result.dimensions[name]) for name in dimensions},
        "pair_accuracy_ties_wrong": interval(result.accuracy_ties_wrong),
        "log_likelihood": interval(result.log_likelihood),
        "pairs": result.pairs,
        "heads": {
            head: dict(zip(dimensions, map(_optional, row), strict=True)) for head, row in zip(dimensions, result.heads, strict=True)
        },
        "calibration": {
            **_calibration_error(result.calibration_error),
            "bins": [_bin(b, "confidence", "accuracy") for b in result.calibration_bins],
            "pairs": result.unseen_pairs,
        },
        "confidence": _confidence(result.confidence),
        "three_way": None if result.three_way is None else _three_way(result.three_way),
        "per_task": {task: interval(value) for task, value in result.by_task.items()},
    }


def interval(value: Interval) -> dict[str, float | None]:
    """An estimate with its interval."""
    return {"value": number(value.estimate), "low": number(value.low), "high": number(value.high)}


def number(value: float) -> float | None:
    """Six decimals; None for what could not be computed (JSON has no NaN)."""
    return None if math.isnan(value) else round(value, 6)


def _optional(value: Interval | None) -> dict[str, float | None] | None:
    return None if value is None else interval(value)


def _calibration_error(found: CalibrationError | None) -> dict[str, Any]:
    if found is None:
        return {"ece": None, "ece_noise": None, "overconfidence": None}
    return {"ece": interval(found.error), "ece_noise": number(found.noise), "overconfidence": interval(found.overconfidence)}


def _bin(found: Bin, predicted: str, observed: str) -> dict[str, Any]:
    rate = interval(found.observed)
    return {predicted: number(found.predicted), observed: rate["value"], "low": rate["low"], "high": rate["high"], "count": found.pairs}


def _confidence(found: Confidence) -> dict[str, Any]:
    halves = {
        name: {"most_confident_half": interval(half.confident), "rest": interval(half.rest), "difference": interval(half.difference)}
        for name, half in found.halves.items()
    }
    curves = {name: [{"share": point.share} | interval(point.accuracy) for point in curve] for name, curve in found.curves.items()}
    by_rule = {name: halves[name] | {"curve": curves[name]} for name in halves}
    return halves["probability"] | {"by": by_rule, "sigma_adds": interval(found.added)}


def _three_way(found: ThreeWay) -> dict[str, Any]:
    return {
        "threshold": found.threshold,
        "pairs": found.pairs,
        "accuracy": interval(found.accuracy),
        "never_tie": interval(found.never_tie),
        "always_tie": interval(found.tie_share),
        "log_likelihood": interval(found.log_likelihood),
        "log_likelihood_uninformed": number(found.uninformed),
        "ties": [_bin(b, "predicted", "observed") for b in found.ties],
    }
