"""Scores as rows: the reward library's results in the ``scores`` contract, rounded, with what could not be scored set aside; and the
scoring of units of samples on Ray actors."""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reward.config import TOKEN_BUDGET
from reward.evaluation.baselines import change_from_source
from reward.inputs.decoding import decode
from reward.model.origin import other_domain, read_origin
from stages.context import Context
from stages.datasets import readers
from stages.engine import contracts, steps, storage
from stages.engine.contracts import Quarantined
from stages.engine.run_units import run_units
from stages.engine.rundir import StepFolder
from stages.engine.units import Done, Unit, UnitOutput, Work

if TYPE_CHECKING:
    from reward import EditSample, RewardModel, Score

DECIMALS = 5
"""Stored precision. Sums in another order differ in the 7th digit; what is stored must not."""

Shown = Sequence[tuple[str, "EditSample", str]]
"""Samples with their ids and tasks."""


def load_model(model: Path) -> RewardModel:
    """A reward model for an actor that scores: on its GPU in bfloat16, else on the CPU in float32, one thread."""
    import torch

    from reward import RewardModel

    torch.set_num_threads(1)
    if torch.cuda.is_available():
        return RewardModel.load(model, device="cuda", dtype=torch.bfloat16)
    return RewardModel.load(model)


def model_folder(context: Context, configured: str | None) -> Path:
    """Directory of the reward model: the configured one, or the one trained in this run."""
    if configured:
        return Path(configured).absolute()
    trained = context.run.step(steps.TRAIN_REWARD)
    trained.sound()
    return trained.path / "model"


def scorer_revision(model: str | Path) -> str:
    """Hash of a saved model's files. Raises ``ValueError`` when there is no model."""
    hashes = storage.tree_hashes(Path(model)) if Path(model).is_dir() else {}
    if "config.json" not in hashes:
        raise ValueError(f"no reward model at {model}; train one, for example with `pipeline run all --config demo`, or name its directory")
    return hashlib.sha256(repr(sorted(hashes.items())).encode()).hexdigest()[:24]


def score_units(
    context: Context, folder: StepFolder, units: Sequence[Unit], model: Path, revision: str, samples_of: Callable[[Any], Shown]
) -> Done:
    """Score what is missing with the workers of evaluate-reward; ``samples_of`` reads the payload of a unit on an actor.

    revision: that of the model (:func:`scorer_revision`), for the rows; actors do not hash the model again.
    """
    workers = context.flow.evaluate_reward.workers
    gpus = context.cluster.share_of_a_gpu(workers)
    work = partial(_make_work, model, revision, samples_of)
    return run_units(folder, units, work, cluster=context.cluster, workers=workers, num_gpus=gpus, rows_are="edits")


def _make_work(model: Path, revision: str, samples_of: Callable[[Any], Shown]) -> Work:
    loaded = load_model(model)
    return lambda payload: _scored(loaded, samples_of(payload), revision)


def _scored(model: RewardModel, samples: Shown, revision: str) -> UnitOutput:
    """The scores of a unit; passes are formed inside this call."""
    from reward import SampleError, score

    rows, quarantine = [], []
    results = score(model=model, samples=[sample for _, sample, _ in samples], token_budget=TOKEN_BUDGET)
    for (sample_id, sample, task), result in zip(samples, results, strict=True):
        if isinstance(result, SampleError):
            quarantine.append(Quarantined(sample_id, sample_id, "unscorable", str(result)))
            continue
        if not math.isfinite(result.overall_mean + result.overall_sigma):
            message = f"the model's score is {result.overall_mean} with sigma {result.overall_sigma}"
            quarantine.append(Quarantined(sample_id, sample_id, "score-not-finite", message))
            continue
        change = change_from_source(decode(sample.source), decode(sample.edited))
        rows.append(score_row(sample_id, result, revision=revision, change=change, task=task, language="en"))
    return UnitOutput({"scores": contracts.table("scores", rows)}, len(samples), len(rows), quarantine)


def warn_of_other_domain(model: Path, datasets: Sequence[str]) -> str | None:
    """Say on standard error that a saved model was trained on other images than those of data sets; returns the sentence, if any."""
    origin = read_origin(model)
    warnings = [warning for name in datasets if (warning := other_domain(origin, readers.domain_of(name)))]
    if not warnings:
        return None
    print(f"warning: {warnings[0]}", file=sys.stderr, flush=True)
    return warnings[0]


def score_row(
    sample_id: str, score: Score, *, revision: str, change: float, task: str, language: str, flags: Sequence[str] = ()
) -> dict[str, Any]:
    """A row of the ``scores`` contract, rounded."""
    likert = score.likert or {}
    return {
        "sample_id": sample_id,
        "scorer_revision": revision,
        "dimensions": contracts.dimension_scores(
            {
                name: {
                    "mean": round(mean, DECIMALS),
                    "sigma": round(score.sigma[name], DECIMALS),
                    "likert": None if name not in likert else round(likert[name], DECIMALS),
                }
                for name, mean in score.mean.items()
            }
        ),
        "overall_mean": round(score.overall_mean, DECIMALS),
        "overall_sigma": round(score.overall_sigma, DECIMALS),
        "change_from_source": round(change, DECIMALS),
        "task": task,
        "language": language,
        "flags": [*flags],
    }
