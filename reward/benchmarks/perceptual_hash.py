"""A hash of what an image shows: 64 bits that survive another encoding, another size and another brightness.

The signs, against their median, of the 8 x 8 lowest frequencies (DCT-II) of the image at 32 x 32 grey pixels; the construction known as
pHash (Zauner 2010).

Measured on 52 source images of public editing data sets (photographs and renderings of 44 scenes): JPEG at quality 30, other sizes,
another aspect or brightness changed by 10 % move at most 4 bits; a crop of 3 % on each side moves up to 10, 6 on average. Of the 1,314
pairs of images of different scenes none is closer than 18 bits. Images of the same scene, such as successive edits of one photograph,
differ by 2 to 22.

An image without structure (blank, a drawing of few flat areas) has few frequencies, and unlike images of that sort can be near: the
embedded world's are.
"""

from __future__ import annotations

import numpy as np
from PIL import Image
from scipy.fft import dctn

SIDE = 32
FREQUENCIES = 8
NEAR = 8
"""Bits by which two images may differ to count as the same picture. Of the 1,314 pairs above 0 are that near: at 95 % confidence fewer
than 3 in 1,314 pairs, so with thousands of training images a match is a reason to look, not a proof.
"""


def perceptual_hash(image: Image.Image) -> int:
    """64 bits of an image in any mode."""
    small = np.asarray(image.convert("L").resize((SIDE, SIDE), Image.Resampling.LANCZOS), dtype=np.float64)
    low = dctn(small, norm="ortho")[:FREQUENCIES, :FREQUENCIES].ravel()
    bits = low > np.median(low[1:])  # the first is the mean brightness
    return int.from_bytes(np.packbits(bits).tobytes(), "big")


def distances(hashes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """uint64 [a], [b] -> number of differing bits [a, b]."""
    return np.bitwise_count(hashes[:, None] ^ others[None, :])
