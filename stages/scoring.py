"""Scores as rows: the reward library's results in the ``scores`` contract, rounded, with what could not be scored set aside."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from stages import storage
from stages.units import Quarantined

if TYPE_CHECKING:
    from reward import EditSample, RewardModel

DECIMALS = 5
"""Stored precision. Sums in another order differ in the 7th digit; what is stored must not."""
THUMBNAIL = 64
"""Longest side, in pixels, at which the change from the source is measured."""


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
        likert = result.likert or {}
        rows.append(
            {
                "sample_id": sample_id,
                "scorer_revision": revision,
                "dimensions": [
                    {
                        "dimension": name,
                        "mean": round(mean, DECIMALS),
                        "sigma": round(result.sigma[name], DECIMALS),
                        "likert": None if name not in likert else round(likert[name], DECIMALS),
                    }
                    for name, mean in result.mean.items()
                ],
                "overall_mean": round(result.overall_mean, DECIMALS),
                "overall_sigma": round(result.overall_sigma, DECIMALS),
                "change_from_source": round(change_from_source(sample.source, sample.edited), DECIMALS),
                "task": task,
                "language": languages[number] if languages else "en",
                "flags": [],
            }
        )
    return Scored(rows, quarantine)


def change_from_source(source: bytes, edited: bytes) -> float:
    """Mean absolute difference (0..255) of two images shrunk to at most 64 pixels; the edit takes the source's shape."""
    with Image.open(io.BytesIO(source)) as opened:
        small = opened.convert("RGB")
        small.thumbnail((THUMBNAIL, THUMBNAIL), Image.Resampling.BOX)
    with Image.open(io.BytesIO(edited)) as opened:
        other = opened.convert("RGB").resize(small.size, Image.Resampling.BOX)
    return float(np.abs(np.asarray(small, np.int16) - np.asarray(other, np.int16)).mean())
