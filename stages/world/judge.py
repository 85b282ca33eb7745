"""The pixel judge: scores an edit from 0 to 10 against source and exact edit, which only a toy world has.

Let m be the pixels where exact edit and source differ by more than 12 of 255 in some channel; |.| absolute difference:

    SC = 10 clip(1 - mean_m |output - target| / mean_m |source - target|, 0, 1)
            exp(-max(0, mean_outside_m |output - source| - 4) / 18)
    PQ = 10 exp(-max(0, mean min(|output - source|, |output - target|) - 1.5) / 14)

All terms are means over pixels, so image size does not matter. A copy of the source gets SC 0 and PQ 10.
Known weaknesses: the two are not orthogonal. Damage to the picture also lowers SC, and an edit half carried out, or
another scene, lowers PQ though it looks clean. A seam or a blur costs less PQ than noise or a colour cast of the same
level. Outside m an exact style edit itself differs from the source by up to 12, which costs it a little SC.
"""

from __future__ import annotations

import numpy as np

CHANGED = 12.0


def judge(source: np.ndarray, target: np.ndarray, output: np.ndarray) -> tuple[float, float]:
    """SC and PQ of an output against source and exact edit, uint8 [S, S, 3] each.

    Raises ValueError when the shapes differ or when the target equals the source.
    """
    if not source.shape == target.shape == output.shape:
        shapes = f"source {source.shape}, target {target.shape}, output {output.shape}"
        raise ValueError(f"the judge compares images of one size, got {shapes}")
    s, t, o = (image.astype(np.float32) for image in (source, target, output))
    wanted = np.abs(t - s)
    changed = wanted.max(axis=2) > CHANGED  # [S, S]
    if not changed.any():
        raise ValueError("the judge needs a target that differs from the source")
    from_source, from_target = np.abs(o - s), np.abs(o - t)
    done = np.clip(1 - from_target[changed].mean() / wanted[changed].mean(), 0, 1)
    spill = float(from_source[~changed].mean()) if not changed.all() else 0.0
    damage = float(np.minimum(from_source, from_target).mean())
    return float(10 * done * np.exp(-max(0.0, spill - 4) / 18)), float(10 * np.exp(-max(0.0, damage - 1.5) / 14))
