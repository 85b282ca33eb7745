"""A rating project of many annotators with known faults, as a ratings table: what tests and the speed benchmark of quality control judge.

A ground-truth level per candidate is cut from a normal variable that the candidates of a group share in part; an annotator adds an offset
and noise before the cut (annotators of a fault differ in these alone, or answer without looking).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from stages.engine.contracts import DIMENSIONS, RATINGS

CUTS = (-0.75, 0.0, 0.75)


@dataclass(frozen=True)
class Rater:
    """offset: added before the cut; drift: added to that over the rater's work; kind: honest, random or three."""

    offset: float = 0.0
    drift: float = 0.0
    noise: float = 0.35
    kind: str = "honest"


def project(
    raters: Mapping[str, Rater],
    *,
    groups: int,
    raters_per_group: Sequence[int],
    candidates: int = 7,
    seed: int = 0,
    round: str = "production",
) -> pa.Table:
    """Ratings [groups x raters x candidates x dimensions]; ``raters_per_group`` is walked through group by group, partners rotate."""
    rng = np.random.default_rng(seed)
    names = sorted(raters)
    slots = [(group, (group * 7 + place * (1 + group % (len(names) - 1))) % len(names)) for group in range(groups)
             for place in range(raters_per_group[group % len(raters_per_group)])]  # fmt: skip
    per_slot = candidates * len(DIMENSIONS)
    group, rater = (np.repeat([slot[i] for slot in slots], per_slot) for i in (0, 1))
    item = np.tile(np.arange(per_slot), len(slots))
    latent = 0.6 * rng.standard_normal((groups, 1)) + 0.8 * rng.standard_normal((groups, per_slot))
    progress = np.repeat([slot[0] / groups for slot in slots], per_slot)
    of = {field: np.array([getattr(raters[name], field) for name in names]) for field in ("offset", "drift", "noise")}
    noisy = latent[group, item] + of["offset"][rater] + progress * of["drift"][rater] + of["noise"][rater] * rng.standard_normal(len(item))
    score = 1.0 + np.searchsorted(CUTS, noisy)
    kind = np.array([raters[name].kind for name in names], dtype=object)[rater]
    score = np.where(kind == "random", rng.integers(1, 5, len(score)), np.where(kind == "three", 3, score)).astype(float)
    n = len(item)
    columns = {
        "rating_id": [f"rating{i}" for i in range(n)],
        "source_id": [f"g{i:05}" for i in group],
        "candidate_id": [f"g{i:05}c{j}" for i, j in zip(group, item // len(DIMENSIONS), strict=True)],
        "annotator": [names[i] for i in rater],
        "dimension": [DIMENSIONS[i] for i in item % len(DIMENSIONS)],
        "score": score,
        "scale_min": np.ones(n),
        "scale_max": np.full(n, 4.0),
        "round": [round] * n,
        "submission": [""] * n,
        "rated_at": [""] * n,
        "seconds": np.full(n, 6.0),
        "comment": [""] * n,
        "rubric_version": ["v1"] * n,
    }
    return pa.table(columns, schema=RATINGS)
