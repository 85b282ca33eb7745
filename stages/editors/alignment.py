"""Shift and zoom of an edit against its source: what editors do to the parts that nobody asked them to change.

The two are compared as grey images whose brightness and contrast are taken out locally, so a changed tone does not matter. First phase
correlation (Kuglin and Hines 1975) finds the shift at each zoom of a coarse grid; then Gauss-Newton steps, in which what differs counts
little (iteratively reweighted with Geman and McClure's weights), refine both. The changed parts therefore do not pull at the result as long
as enough of the picture is still there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from PIL import Image
from scipy import ndimage

COARSE, FINE = 128, 256
"""Longest sides in pixels at which the images are compared."""
ZOOMS = np.geomspace(0.8, 1.25, 25)
TAPER = 0.3
"""Of the window of phase correlation: a wide one leaves an edit in the middle nothing to be measured by."""
BLURS = (4.0, 2.0, 1.0)
"""Standard deviations, in pixels, of what the refinement sees, from coarse to fine."""
STEPS = 4
CONVERGED = 0.005
BLOCK = 16
SAME = 0.5
"""Correlation from which a block shows the same in both."""
LEAST_SAME = 0.25
"""Share of blocks that must show the same: below, shift and zoom are of nothing."""


class Alignment(NamedTuple):
    """``dx``, ``dy``: how far the content moved to the right and down, in pixels of the source. ``zoom``: how much larger it became,
    about the image's centre; 1 where it did not."""

    dx: float
    dy: float
    zoom: float


def shift_and_zoom(source: Image.Image, edited: Image.Image) -> Alignment | None:
    """How the edit lies against its source; None where it cannot be told.

    That is with another size, no structure, too much that changed, or a picture so long that not one block fits across it when it is small.
    """
    if source.size != edited.size or min(source.size) * min(1.0, FINE / max(source.size)) < BLOCK:
        return None
    coarse = [_structure(image, COARSE) for image in (source, edited)]
    found = _search(*coarse)
    fine = [_structure(image, FINE) for image in (source, edited)]
    scale = max(fine[0].shape) / max(coarse[0].shape)
    found = _refine(fine[0], fine[1], Alignment(found.dx * scale, found.dy * scale, found.zoom))
    if _same(fine[0], _moved_back(fine[1], found)) < LEAST_SAME:
        return None
    back = max(source.size) / max(fine[0].shape)
    return Alignment(found.dx * back, found.dy * back, found.zoom)


def _structure(image: Image.Image, side: int) -> np.ndarray:
    """Grey without local brightness and contrast, float32 [height, width], the longest side at most ``side``."""
    scale = min(1.0, side / max(image.size))
    small = image.convert("L").resize([max(1, round(length * scale)) for length in image.size], Image.Resampling.BOX)
    grey = ndimage.gaussian_filter(np.asarray(small, np.float32), 1.0)
    detail = grey - ndimage.gaussian_filter(grey, 6.0)
    return detail / (np.sqrt(ndimage.gaussian_filter(detail**2, 12.0)) + 2.0)


def _moved_back(edited: np.ndarray, by: Alignment) -> np.ndarray:
    """The edit as it lies on the source once shift and zoom are undone; NaN where it has nothing there."""
    centre = (np.array(edited.shape) - 1) / 2
    offset = centre * (1 - by.zoom) + (by.dy, by.dx)
    return ndimage.affine_transform(edited, np.array([by.zoom, by.zoom]), offset, order=1, cval=np.nan)


def _search(source: np.ndarray, edited: np.ndarray) -> Alignment:
    """Shift and zoom with the highest peak of phase correlation, to a pixel and to a step of the zooms."""
    from scipy.signal import windows  # half a second, which a worker needs only here

    window = np.outer(*(windows.tukey(length, TAPER) for length in source.shape))
    reference = np.conj(np.fft.rfft2(source * window))
    best, highest = Alignment(0, 0, 1), -np.inf
    for zoom in ZOOMS:
        moved = np.nan_to_num(_moved_back(edited, Alignment(0, 0, zoom)))
        cross = np.fft.rfft2(moved * window) * reference
        surface = np.fft.irfft2(cross / (np.abs(cross) + 1e-6), source.shape)
        surface = ndimage.gaussian_filter(surface, 0.7, mode="wrap")
        peak = np.unravel_index(surface.argmax(), surface.shape)
        if surface[peak] > highest:
            highest = surface[peak]
            dy, dx = ((at + length // 2) % length - length // 2 for at, length in zip(peak, surface.shape, strict=True))
            best = Alignment(float(dx * zoom), float(dy * zoom), float(zoom))
    return best


def _refine(source: np.ndarray, edited: np.ndarray, found: Alignment) -> Alignment:
    """Shift and zoom to a fraction of a pixel, from a start that is right to a few."""
    y, x = (np.arange(length) - (length - 1) / 2 for length in source.shape)
    for blur in BLURS:
        still, moving = (ndimage.gaussian_filter(image, blur) for image in (source, edited))
        for _ in range(STEPS):
            moved = _moved_back(moving, found)
            down, right = np.gradient(moved)
            slopes = np.stack([right, down, right * x + down * y[:, None]])
            known = np.isfinite(slopes).all(axis=0)
            slopes, residual = slopes[:, known], (still - moved)[known]
            if not residual.size:
                return found
            spread = max(1.4826 * float(np.median(np.abs(residual))), 0.02)
            weighted = slopes * (1 + (residual / (2 * spread)) ** 2) ** -2
            dx, dy, zoom = np.linalg.lstsq(weighted @ slopes.T, weighted @ residual, rcond=None)[0].tolist()
            # the step is one of the moved image, whose pixels are ``zoom`` pixels of the edit
            found = Alignment(found.dx + dx * found.zoom, found.dy + dy * found.zoom, found.zoom * (1 + zoom))
            if max(abs(dx), abs(dy), abs(zoom) * max(source.shape) / 2) < CONVERGED:
                break
    return found


def _same(source: np.ndarray, moved: np.ndarray) -> float:
    """Share of the source's blocks that correlate with the edit's, of those with structure in either."""
    known = np.isfinite(moved)
    one, other = np.where(known, source, 0), np.where(known, moved, 0)

    def sums(values: np.ndarray) -> np.ndarray:
        high, wide = (length // BLOCK * BLOCK for length in values.shape)
        return values[:high, :wide].reshape(high // BLOCK, BLOCK, wide // BLOCK, BLOCK).sum(axis=(1, 3))

    count = BLOCK * BLOCK
    squares = [sums(image**2) - sums(image) ** 2 / count for image in (one, other)]
    product = sums(one * other) - sums(one) * sums(other) / count
    structured = np.maximum(*squares) > 0.05 * count
    correlation = product / np.sqrt(np.maximum(squares[0] * squares[1], 1e-6))
    return float((correlation[structured] > SAME).mean()) if structured.any() else 0.0
