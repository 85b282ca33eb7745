"""Evaluate the reward model on held-out source groups: agreement, what each head predicts, calibration, confidence, baselines.

Agreement is with the raters' preferences and, for candidates of the built-in toy data set, with its ground-truth quality ("truth").
Accuracies are over strict pairs unless named otherwise; intervals are bootstrapped over sources. Whatever depends on a calibration is
measured on the half of the groups that it was not fitted on. Trivial baselines (scores that ignore the instruction) are measured too.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from reward.evaluation.estimate import number
from reward.model.origin import OTHER_DOMAIN
from stages.context import Context
from stages.engine import contracts, steps, storage
from stages.engine.ids import settings_hash
from stages.engine.rundir import Index, RunDir
from stages.engine.units import Unit
from stages.evaluate_reward import benchmarks
from stages.evaluate_reward.config import EvaluateRewardConfig
from stages.evaluate_reward.figures import figures
from stages.preferences.groups import calibrates, load_groups, with_truth
from stages.scoring.rows import Shown, score_units, scorer_revision, warn_of_other_domain

if TYPE_CHECKING:
    from reward import RatedGroup
    from reward.evaluation.metrics import Prediction

STEP = steps.EVALUATE_REWARD


def run(context: Context) -> Index:
    """Score the held-out candidates and publish ``evaluation.json``, and the benchmarks' figures; returns the step's index.

    A model that was not trained in this run is measured on the held-out groups of the run, where there are any, and on the benchmarks.
    """
    config = context.flow.evaluate_reward
    model, inputs = _model(context, config)
    inputs |= benchmarks.inputs(config)
    settings = {"evaluate_reward": config.model_dump(mode="json", exclude={"workers", "unit_sources"}), "seed": context.flow.seed}
    folder = context.run.step(STEP)
    draft, done = folder.begin(settings=settings, inputs=inputs, force=context.force)
    if done:
        return done
    groups = load_groups(context.run, "validation") if context.run.step(steps.PREFERENCES).index() is not None else []
    if not groups and not config.benchmarks:
        raise ValueError(
            f"there is nothing to evaluate {model} on: {context.run.path} has no held-out groups, and no benchmarks are listed"
        )
    datasets = set(context.run.step(steps.GENERATE).column("sources", "source_id", "dataset").values()) if groups else set()
    warning = warn_of_other_domain(model, [*(["benchmarks"] if config.benchmarks else []), *sorted(datasets)])
    files, results = benchmarks.run(context, folder, model)
    results |= {OTHER_DOMAIN: warning} if warning else {}
    if not groups:
        return folder.publish(draft, files=files, results=results)
    revision = scorer_revision(model)
    slices = [groups[first : first + config.unit_sources] for first in range(0, len(groups), config.unit_sources)]
    units = [
        Unit(settings_hash(STEP, [group.candidate_ids for group in part], revision), part, sum(len(g.candidates) for g in part))
        for part in slices
    ]
    result = score_units(context, folder, units, model, revision, _samples)
    scores = {row["sample_id"]: row for row in folder.read_table("scores", result.artifacts()["scores"]).to_pylist()}
    threshold = _tie_threshold(model)
    evaluation = _evaluation(groups, scores, context.run, threshold, config.bootstrap, context.flow.seed)
    files["evaluation.json"] = storage.publish_json(folder.path / "evaluation.json", evaluation)
    reference = evaluation["against"]["truth" if "truth" in evaluation["against"] else "ratings"]
    results |= {"pair_accuracy": reference["pair_accuracy"]["overall"], "against": sorted(evaluation["against"])}
    return folder.publish(draft, **result.tables(), files=files, results=results)


def _model(context: Context, config: EvaluateRewardConfig) -> tuple[Path, dict[str, str]]:
    """Directory of the model, and the fingerprints of what the evaluation rests on."""
    if config.model is None:
        trained = context.run.step(steps.TRAIN_REWARD)
        return trained.path / "model", {steps.TRAIN_REWARD: trained.sound().fingerprint}
    model = Path(config.model).absolute()
    held_out = context.run.step(steps.PREFERENCES).index()
    return model, {"model": scorer_revision(model)} | ({steps.PREFERENCES: held_out.fingerprint} if held_out is not None else {})


def _tie_threshold(model: Path) -> float | None:
    """The threshold in a saved model's calibration; None where it has none."""
    from reward.model.calibration import read_calibration

    calibration = read_calibration(model)
    return None if calibration is None else calibration.tie_threshold


def _samples(groups: list[RatedGroup]) -> Shown:
    from reward import EditSample

    return [
        (candidate, EditSample(group.source, group.instruction, edited), group.task)
        for group in groups
        for candidate, edited in zip(group.candidate_ids, group.candidates, strict=True)
    ]


def _evaluation(
    groups: list[RatedGroup], scores: dict[str, dict[str, Any]], run: RunDir, threshold: float | None, resamples: int, seed: int
) -> dict[str, Any]:
    """All figures of the report, JSON-able; a group with a quarantined candidate is left out and counted."""
    from reward.evaluation import baselines
    from reward.evaluation.evaluate import evaluate, from_scores, overall_accuracy
    from reward.evaluation.metrics import labelled_pairs

    complete = [group for group in groups if all(candidate in scores for candidate in group.candidate_ids)]
    if not complete:
        raise ValueError(f"none of the {len(groups)} held-out groups could be scored; see the quarantine of {STEP}")
    dimensions = tuple(complete[0].scores[0])
    predictions = [_prediction(group, scores, dimensions) for group in complete]
    calibrated_on = {group.source_id for group in complete if calibrates(group.source_id)}
    trivial = {
        "closeness to the source": baselines.closeness_scores(complete),
        "constant": baselines.constant_scores(complete),
        "random": baselines.random_scores(complete, seed=seed),
    }
    rated = {"the raters themselves": [np.array([sum(score.values()) for score in group.scores]) for group in complete]}
    truth = with_truth(complete, run)
    references = {"ratings": complete} | ({"truth": truth} if truth else {})
    against = {}
    for name, labelled in references.items():
        result = evaluate(
            groups=labelled,
            predictions=predictions,
            dimensions=dimensions,
            tie_threshold=threshold,
            calibrated_on=calibrated_on,
            resamples=resamples,
            seed=seed,
        )
        compared = trivial | (rated if name == "truth" else {})
        pairs = {which: labelled_pairs(labelled, from_scores(values, len(dimensions))) for which, values in compared.items()}
        accuracies = {which: overall_accuracy(found, resamples=resamples, seed=seed).to_json() for which, found in pairs.items()}
        against[name] = figures(result, dimensions) | {"baselines": accuracies}
    return {
        "against": against,
        "likert": _likert(complete, scores, dimensions),
        "groups": len(complete),
        "groups_left_out": len(groups) - len(complete),
        "groups_calibrated_on": len(calibrated_on),
        "resamples": resamples,
        "seed": seed,
        "conventions": "strict pairs only; a predicted tie counts half; pairs averaged; 95 % intervals bootstrapped over sources",
    }


def _prediction(group: RatedGroup, scores: dict[str, dict[str, Any]], dimensions: tuple[str, ...]) -> Prediction:
    from reward.evaluation.metrics import Prediction

    rows = [scores[candidate] for candidate in group.candidate_ids]
    by_name = [contracts.scores_by_dimension(row["dimensions"]) for row in rows]
    return Prediction(
        mean=np.array([[entry[name]["mean"] for name in dimensions] for entry in by_name]),
        sigma=np.array([[entry[name]["sigma"] for name in dimensions] for entry in by_name]),
        overall_mean=np.array([row["overall_mean"] for row in rows]),
        overall_sigma=np.array([row["overall_sigma"] for row in rows]),
    )


def _likert(groups: list[RatedGroup], scores: dict[str, dict[str, Any]], dimensions: tuple[str, ...]) -> dict[str, Any]:
    """Mean absolute error of the calibrated scores on the half of the groups that the calibration did not see."""
    unseen = [group for group in groups if not calibrates(group.source_id)]
    errors: dict[str, list[float]] = {name: [] for name in dimensions}
    for group in unseen:
        for candidate, rated in zip(group.candidate_ids, group.scores, strict=True):
            for name, score in contracts.scores_by_dimension(scores[candidate]["dimensions"]).items():
                if score["likert"] is not None:
                    errors[name].append(abs(score["likert"] - rated[name]))
    return {
        name: {"mean_absolute_error": number(float(np.mean(values))), "ratings": len(values)} for name, values in errors.items() if values
    }
