"""How well an edit keeps what it should not touch, in pixels: no judge, so nothing that was optimised for one can please it.

The changed region is where source and exact edit differ or, where no exact edit is known, where source and edit differ after a slight blur.
Outside of it PSNR and SSIM (Wang et al. 2004, IEEE TIP 13) of edit and source are measured. Without an exact edit the measure cannot see
damage strong enough to count as change; the share of changed pixels beside it shows that. Edits that should change everything (styles,
tones, backgrounds) have little outside.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import ndimage

CHANGE = 12.0
"""Mean difference of the colour channels, 0 to 255 and blurred, from which a pixel counts as changed."""
BLUR = 1.5
"""Standard deviation in pixels of this blur and of SSIM's window."""
MARGIN = 6
"""Pixels around the changed region that do not count as outside: SSIM's window, with which pixels beyond it see the change."""
LEAST_OUTSIDE = 0.01
"""Share of the image below which nothing is measured outside."""
MOST_PSNR = 60.0
"""dB that stand for equal pixels, whose PSNR has no bound."""


@dataclass(frozen=True)
class Preservation:
    """``changed_share`` of the pixels; PSNR in dB and mean SSIM (at most 1) outside of them, None where too little is outside."""

    changed_share: float
    psnr: float | None
    ssim: float | None


def preservation(source: np.ndarray, edited: np.ndarray, reference: np.ndarray | None = None) -> Preservation:
    """Of images uint8 [height, width, 3] of one size."""
    a, b = source.astype(np.float64), edited.astype(np.float64)
    changed = changed_region(source, edited, reference)
    outside = ~ndimage.binary_dilation(changed, iterations=MARGIN) if changed.any() else ~changed
    share = round(float(changed.mean()), 5)
    if outside.mean() < LEAST_OUTSIDE:
        return Preservation(share, None, None)
    error = float(np.square(a - b)[outside].mean())
    psnr = MOST_PSNR if error == 0 else min(MOST_PSNR, 10 * math.log10(255**2 / error))
    return Preservation(share, round(psnr, 4), round(float(_ssim(_luma(a), _luma(b))[outside].mean()), 5))


def changed_region(source: np.ndarray, edited: np.ndarray, reference: np.ndarray | None = None) -> np.ndarray:
    """Bool [height, width] of images uint8 [height, width, 3] of one size: where they may differ, by the rule of this file."""
    if reference is not None:
        return (source != reference).any(2)
    difference = np.abs(source.astype(np.float64) - edited.astype(np.float64)).mean(2)
    return ndimage.gaussian_filter(difference, BLUR) > CHANGE


def _luma(image: np.ndarray) -> np.ndarray:
    """[height, width] of [height, width, 3], by ITU-R BT.601."""
    return image @ np.array([0.299, 0.587, 0.114])


def _ssim(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """SSIM at every pixel of [height, width] images, with a Gaussian window."""

    def mean(values: np.ndarray) -> np.ndarray:
        return ndimage.gaussian_filter(values, BLUR, truncate=3.5)

    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    mean_a, mean_b = mean(a), mean(b)
    var_a, var_b, both = mean(a * a) - mean_a**2, mean(b * b) - mean_b**2, mean(a * b) - mean_a * mean_b
    return (2 * mean_a * mean_b + c1) * (2 * both + c2) / ((mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2))
