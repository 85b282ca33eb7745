"""Scores as rows: the reward library's results in the ``scores`` contract, rounded, with what could not be scored set aside."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reward.evaluation.baselines import change_from_source
from reward.inputs.decoding import decode
from stages.engine import contracts, storage
from stages.engine.contracts import Quarantined

if TYPE_CHECKING:
    from reward import EditSample, RewardModel, Score

DECIMALS = 5
"""Stored precision. Sums in another order differ in the 7th digit; what is stored must not."""


@dataclass(frozen=True)
class Scored:
    """Rows of the ``scores`` contract, and samples that have no score."""

    rows: list[dict[str, Any]]
    quarantine: list[Quarantined]


def load_model(model: Path) -> RewardModel:
    """A reward model for an actor that scores: on its GPU in bfloat16, else on the CPU in float32, one thread."""
    import torch

    from reward import RewardModel

    torch.set_num_threads(1)
    if torch.cuda.is_available():
        return RewardModel.load(model, device="cuda", dtype=torch.bfloat16)
    return RewardModel.load(model)


def scorer_revision(model: str | Path) -> str:
    """Hash of a saved model's files. Raises ``ValueError`` when there is no model."""
    hashes = storage.tree_hashes(Path(model)) if Path(model).is_dir() else {}
    if "config.json" not in hashes:
        raise ValueError(f"no reward model at {model}; train one with `pipeline run train-reward`, or name its directory")
    return hashlib.sha256(repr(sorted(hashes.items())).encode()).hexdigest()[:24]


def score_rows(
    model: RewardModel, samples: Sequence[tuple[str, EditSample, str]], *, revision: str, token_budget: int, languages: Sequence[str] = ()
) -> Scored:
    """Score (id, sample, task) triples; passes are formed inside this call."""
    from reward import SampleError, score

    rows, quarantine = [], []
    results = score(model=model, samples=[sample for _, sample, _ in samples], token_budget=token_budget)
    for number, ((sample_id, sample, task), result) in enumerate(zip(samples, results, strict=True)):
        if isinstance(result, SampleError):
            quarantine.append(Quarantined(sample_id, sample_id, "unscorable", str(result)))
            continue
        if not math.isfinite(result.overall_mean + result.overall_sigma):
            message = f"the model's score is {result.overall_mean} with sigma {result.overall_sigma}"
            quarantine.append(Quarantined(sample_id, sample_id, "score-not-finite", message))
            continue
        change = change_from_source(decode(sample.source), decode(sample.edited))
        language = languages[number] if languages else "en"
        rows.append(score_row(sample_id, result, revision=revision, change=change, task=task, language=language))
    return Scored(rows, quarantine)


def score_row(sample_id: str, score: Score, *, revision: str, change: float, task: str, language: str) -> dict[str, Any]:
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
        "flags": [],
    }
