"""Shift and zoom of an edit against its source: what editors do to the parts that nobody asked them to change.

The two are compared as grey images whose brightness and contrast are taken out locally, so a changed tone does not matter. First phase
correlation (Kuglin and Hines 1975) finds the shift at each zoom of a coarse grid; then Gauss-Newton steps, in which what differs counts
little (iteratively reweighted with Geman and McClure's weights), refine both. The changed parts therefore do not pull at the result as long
as enough of the picture is still there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from PIL import Image
from scipy import fft, ndimage

COARSE, FINE = 128, 256
"""Longest sides in pixels at which the images are compared."""
ZOOMS = np.geomspace(0.8, 1.25, 25)
TAPER = 0.3
"""Of the window of phase correlation: a wide one leaves an edit in the middle nothing to be measured by."""
COARSE_BLURS, FINE_BLURS = (2.0,), (2.0, 1.0)
"""Standard deviations, in pixels, of what the refinement sees, from coarse to fine."""
_LEVELS = ((COARSE, COARSE_BLURS), (FINE, FINE_BLURS))
PEAK_BLUR = 0.7
"""Standard deviation in pixels by which the surface of phase correlation is blurred before its peak is taken."""
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

    def at(self, scale: float) -> Alignment:
        """The same for images that are so many times as large."""
        return Alignment(self.dx * scale, self.dy * scale, self.zoom)


class Reference:
    """A source, and what all its edits are compared with, computed once."""

    def __init__(self, source: Image.Image) -> None:
        self.size = source.size
        self.measurable = min(source.size) * min(1.0, FINE / max(source.size)) >= BLOCK
        if self.measurable:
            self._coarse, self._fine = (_Level.of(source, *level) for level in _LEVELS)
            self._spectrum = np.conj(fft.rfft2(self._coarse.structure * _window(self._coarse.structure.shape)))

    def shift_and_zoom(self, edited: Image.Image) -> Alignment | None:
        """How the edit lies against the source; None where it cannot be told.

        That is with another size, no structure, too much that changed, or a picture so long that not one block fits across it when it is
        small.
        """
        if self.size != edited.size or not self.measurable:
            return None
        coarse, fine = (_Level.of(edited, *level) for level in _LEVELS)
        found = _refine(self._coarse, coarse, self._search(coarse.structure))
        found = _refine(self._fine, fine, found.at(max(fine.structure.shape) / max(coarse.structure.shape)))
        if _same(self._fine.structure, _moved_back(fine.structure, found)) < LEAST_SAME:
            return None
        return found.at(max(self.size) / max(fine.structure.shape))

    def _search(self, edited: np.ndarray) -> Alignment:
        """Shift and zoom with the highest peak of phase correlation, to a pixel and to a step of the zooms."""
        window, blur = _window(edited.shape), _blur_of_peaks(edited.shape)
        best, highest = Alignment(0, 0, 1), -np.inf
        for zoom in ZOOMS:
            cross = fft.rfft2(_moved_back(edited, Alignment(0, 0, zoom), beside=0.0) * window) * self._spectrum
            surface = fft.irfft2(cross * (blur / (np.abs(cross) + 1e-6)), edited.shape)
            peak = np.unravel_index(surface.argmax(), surface.shape)
            if surface[peak] > highest:
                highest = surface[peak]
                dy, dx = ((at + length // 2) % length - length // 2 for at, length in zip(peak, surface.shape, strict=True))
                best = Alignment(float(dx * zoom), float(dy * zoom), float(zoom))
        return best


@dataclass(frozen=True)
class _Level:
    """An image at one size: its structure, float32 [height, width], and that with each of the blurs."""

    structure: np.ndarray
    blurred: list[np.ndarray]

    @classmethod
    def of(cls, image: Image.Image, side: int, blurs: tuple[float, ...]) -> _Level:
        structure = _structure(image, side)
        return cls(structure, [ndimage.gaussian_filter(structure, blur) for blur in blurs])


def _structure(image: Image.Image, side: int) -> np.ndarray:
    """Grey without local brightness and contrast, float32 [height, width], the longest side at most ``side``."""
    scale = min(1.0, side / max(image.size))
    small = image.convert("L").resize([max(1, round(length * scale)) for length in image.size], Image.Resampling.BOX)
    grey = ndimage.gaussian_filter(np.asarray(small, np.float32), 1.0)
    detail = grey - ndimage.gaussian_filter(grey, 6.0)
    return detail / (np.sqrt(_widely_blurred(detail**2)) + 2.0)


def _widely_blurred(values: np.ndarray) -> np.ndarray:
    """Blurred with a standard deviation of 12 pixels, computed at a quarter of the size."""
    small = Image.fromarray(values).reduce(4)
    blurred = Image.fromarray(ndimage.gaussian_filter(np.asarray(small), 3.0))
    high, wide = values.shape
    return np.asarray(blurred.resize((wide, high), Image.Resampling.BILINEAR, (0, 0, wide / 4, high / 4)))


@lru_cache(maxsize=32)
def _window(shape: tuple[int, int]) -> np.ndarray:
    from scipy.signal import windows  # half a second, which a worker needs only here

    return np.outer(*(windows.tukey(length, TAPER) for length in shape)).astype(np.float32)


@lru_cache(maxsize=32)
def _blur_of_peaks(shape: tuple[int, int]) -> np.ndarray:
    """Of the real transform of an image of that shape: a Gaussian."""
    down, across = fft.fftfreq(shape[0]), fft.rfftfreq(shape[1])
    return np.exp(-2 * (np.pi * PEAK_BLUR) ** 2 * (down[:, None] ** 2 + across**2)).astype(np.float32)


def _moved_back(edited: np.ndarray, by: Alignment, beside: float = np.nan) -> np.ndarray:
    """The edit as it lies on the source once shift and zoom are undone; ``beside`` where it has nothing there."""
    centre = (np.array(edited.shape) - 1) / 2
    offset = centre * (1 - by.zoom) + (by.dy, by.dx)
    return ndimage.affine_transform(edited, np.array([by.zoom, by.zoom]), offset, order=1, cval=beside)


def _refine(source: _Level, edited: _Level, found: Alignment) -> Alignment:
    """Shift and zoom to a fraction of a pixel, from a start that is right to a few."""
    shape = source.structure.shape
    y, x = (np.arange(length, dtype=np.float32) - (length - 1) / 2 for length in shape)
    for still, moving in zip(source.blurred, edited.blurred, strict=True):
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
            if max(abs(dx), abs(dy), abs(zoom) * max(shape) / 2) < CONVERGED:
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
