"""Image files whose stored pixels are not the picture: turned by EXIF, transparent, 16 bits, CMYK, animated. All made by Pillow."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image


def gradient() -> np.ndarray:
    """A smooth picture without any symmetry, uint8 [16, 24, 3]."""
    down, across = np.mgrid[0:16, 0:24]
    return np.stack([10 * down + 40, 5 * across + 60, 4 * down + 3 * across + 20], axis=2).astype(np.uint8)


def encoded(image: Image.Image, kind: str, **how: Any) -> bytes:
    """The file's bytes; JPEG and WebP nearly without loss."""
    buffer = io.BytesIO()
    loss = {"JPEG": {"quality": 100, "subsampling": 0}, "WEBP": {"lossless": True, "exact": True}}
    image.save(buffer, kind, **loss.get(kind, {}) | how)
    return buffer.getvalue()


def exif(orientation: int) -> Image.Exif:
    """An EXIF block with an orientation."""
    block = Image.Exif()
    block[0x0112] = orientation
    return block


def turned(pixels: np.ndarray) -> Image.Image:
    """The picture as a camera on its side stores it, to be shown with orientation 6 (a quarter turn clockwise)."""
    return Image.fromarray(np.rot90(pixels).copy())


def with_alpha(pixels: np.ndarray) -> tuple[Image.Image, np.ndarray]:
    """The picture with transparency from 0 to full, arbitrary colours where it is full, and what that looks like over white."""
    alpha = np.linspace(0, 255, 24).round().astype(np.uint8)[None].repeat(16, 0)
    hidden = np.where(alpha[..., None] == 0, np.array([255, 0, 255], np.uint8), pixels)
    seen = 255 + (pixels.astype(float) - 255) * alpha[..., None] / 255
    return Image.fromarray(np.dstack([hidden, alpha])), seen.round().astype(int)


def _odd() -> dict[str, tuple[bytes, np.ndarray, int]]:
    pixels = gradient()
    plain = Image.fromarray(pixels)
    alpha, blended = with_alpha(pixels)
    grey = pixels[..., 0].astype(np.uint16) * 256 + 77
    grey_seen = np.repeat(pixels[..., :1], 3, axis=2)
    palette = plain.quantize(16)
    colours = np.asarray(palette.convert("RGB")).copy()
    colours[np.asarray(palette) == 3] = 255
    alpha_grey = Image.merge("LA", (Image.fromarray(pixels[..., 0]), alpha.getchannel("A")))
    alpha_grey_seen = 255 + (grey_seen.astype(float) - 255) * np.asarray(alpha.getchannel("A"))[..., None] / 255
    later = Image.fromarray(255 - pixels)
    return {
        "JPEG turned by EXIF": (encoded(turned(pixels), "JPEG", exif=exif(6)), pixels, 3),
        "PNG turned by EXIF": (encoded(turned(pixels), "PNG", exif=exif(6)), pixels, 0),
        "WebP turned by EXIF": (encoded(turned(pixels), "WEBP", exif=exif(6)), pixels, 0),
        "PNG with alpha": (encoded(alpha, "PNG"), blended, 1),
        "WebP with alpha": (encoded(alpha, "WEBP"), blended, 1),
        "grey PNG with alpha": (encoded(alpha_grey, "PNG"), alpha_grey_seen.round().astype(int), 1),
        "palette PNG with a transparent colour": (encoded(palette, "PNG", transparency=3), colours, 0),
        "16-bit grey PNG": (encoded(Image.fromarray(grey), "PNG"), grey_seen, 0),
        "CMYK JPEG": (encoded(plain.convert("CMYK"), "JPEG"), pixels, 3),
        "animated PNG": (encoded(plain, "PNG", save_all=True, append_images=[later]), pixels, 0),
        "animated WebP": (encoded(plain, "WEBP", save_all=True, append_images=[later]), pixels, 0),
    }


ODD = _odd()
"""By name: the file, the picture that everybody should see (int [16, 24, 3]), and how far lossy coding may be from it."""
