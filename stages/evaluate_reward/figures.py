"""The held-out evaluation of a reward model as plain values for ``evaluation.json``; docs/contracts.md says what each means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from reward.evaluation.estimate import Estimate, number

if TYPE_CHECKING:
    from reward.evaluation.confidence import Bin, CalibrationError, Confidence
    from reward.evaluation.evaluate import Evaluation
    from reward.evaluation.outcomes import ThreeWay


def figures(result: Evaluation, dimensions: Sequence[str]) -> dict[str, Any]:
    """Everything measured against one kind of labels."""
    return {
        "pair_accuracy": {"overall": result.accuracy.to_json() | {"n": result.strict_pairs}}
        | {name: _plain(result.dimensions[name]) for name in dimensions},
        "pair_accuracy_ties_wrong": result.accuracy_ties_wrong.to_json(),
        "log_likelihood": result.log_likelihood.to_json(),
        "pairs": result.pairs,
        "heads": {head: dict(zip(dimensions, map(_plain, row), strict=True)) for head, row in zip(dimensions, result.heads, strict=True)},
        "calibration": {
            **_calibration_error(result.calibration_error),
            "bins": [_bin(b, "confidence", "accuracy") for b in result.calibration_bins],
            "pairs": result.unseen_pairs,
        },
        "confidence": _confidence(result.confidence),
        "three_way": None if result.three_way is None else _three_way(result.three_way),
        "per_task": {task: value.to_json() for task, value in result.by_task.items()},
    }


def _calibration_error(found: CalibrationError | None) -> dict[str, Any]:
    if found is None:
        return {"ece": None, "ece_noise": None, "overconfidence": None}
    return {"ece": found.error.to_json(), "ece_noise": number(found.noise), "overconfidence": found.overconfidence.to_json()}


def _bin(found: Bin, predicted: str, observed: str) -> dict[str, Any]:
    rate = found.observed.to_json()
    return {predicted: number(found.predicted), observed: rate["value"], "low": rate["low"], "high": rate["high"], "count": found.pairs}


def _confidence(found: Confidence) -> dict[str, Any]:
    halves = {
        name: {"most_confident_half": half.confident.to_json(), "rest": half.rest.to_json(), "difference": half.difference.to_json()}
        for name, half in found.halves.items()
    }
    curves = {name: [{"share": point.share} | point.accuracy.to_json() for point in curve] for name, curve in found.curves.items()}
    by_rule = {name: halves[name] | {"curve": curves[name]} for name in halves}
    return halves["probability"] | {"by": by_rule, "sigma_adds": found.added.to_json()}


def _three_way(found: ThreeWay) -> dict[str, Any]:
    return {
        "threshold": found.threshold,
        "pairs": found.pairs,
        "accuracy": found.accuracy.to_json(),
        "never_tie": found.never_tie.to_json(),
        "always_tie": found.tie_share.to_json(),
        "log_likelihood": found.log_likelihood.to_json(),
        "log_likelihood_uninformed": number(found.uninformed),
        "ties": [_bin(b, "predicted", "observed") for b in found.ties],
    }


def _plain(value: Estimate | None) -> dict[str, Any] | None:
    return None if value is None else value.to_json()
