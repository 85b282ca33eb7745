"""The one decoder on real files of every odd kind, and that what it gives for ordinary files is what it always was."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from odd_images import ODD, encoded, exif, gradient
from PIL import Image, ImageOps

from reward.inputs.decoding import decode, for_browser
from reward.inputs.sample import ImageError


def pixels(data: bytes) -> np.ndarray:
    return np.asarray(decode(data)).astype(int)


@pytest.mark.parametrize("name", ODD)
def test_every_odd_file_shows_the_picture_that_it_was_made_from(name: str) -> None:
    data, picture, tolerance = ODD[name]
    found = decode(data)
    assert found.mode == "RGB" and found.size == (picture.shape[1], picture.shape[0]) and not found.info
    assert np.abs(np.asarray(found).astype(int) - picture).max() <= tolerance


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_all_orientations_are_those_of_pillow(orientation: int, kind: str) -> None:
    data = encoded(Image.fromarray(gradient()), kind, exif=exif(orientation))
    with Image.open(io.BytesIO(data)) as image:
        image.load()
        expected = np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    assert np.array_equal(pixels(data), expected)
    assert pixels(data).shape[:2] == ((24, 16) if orientation >= 5 else (16, 24))


def test_a_picture_is_turned_once_however_often_it_is_decoded(tmp_path: Any) -> None:
    data = encoded(Image.fromarray(gradient()), "JPEG", exif=exif(6))
    (tmp_path / "a.jpg").write_bytes(data)
    once = decode(data)
    with Image.open(tmp_path / "a.jpg") as image:
        same = [decode(once), decode(tmp_path / "a.jpg"), decode(str(tmp_path / "a.jpg")), decode(image)]
        assert image.getexif()[0x0112] == 6  # the caller's image stays as it is
    assert all(np.array_equal(once, other) for other in same)


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "1"])
def test_ordinary_files_have_the_values_that_convert_gives(mode: str) -> None:
    data = encoded(Image.fromarray(gradient()).convert(mode), "PNG")
    with Image.open(io.BytesIO(data)) as image:
        assert image.mode == mode and np.array_equal(pixels(data), np.asarray(image.convert("RGB")))


def test_a_damaged_exif_block_says_nothing() -> None:
    plain, broken = (encoded(Image.fromarray(gradient()), "JPEG", exif=block) for block in (b"", b"Exif\0\0garbage, garbage"))
    assert np.array_equal(pixels(plain), pixels(broken))


def test_orientation_outside_exif_is_ignored_as_browsers_do() -> None:
    xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
    assert pixels(encoded(Image.fromarray(gradient()), "JPEG", xmp=xmp)).shape[:2] == (16, 24)


def test_a_decompression_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(ImageError, match=r"the source image of .* cannot be decoded .*decompression bomb"):
        decode(encoded(Image.fromarray(gradient()), "PNG"), what="the source image")


def test_a_file_cut_short_is_refused_in_any_kind() -> None:
    for name, (data, _, _) in ODD.items():
        if "animated" in name:  # its first frame may be whole
            continue
        with pytest.raises(ImageError, match="cannot be decoded"):
            decode(data[: len(data) * 2 // 3], what=name)


def test_a_transparent_colour_of_16_bits_is_ignored() -> None:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 2, 1, 16, 0, 0, 0, 0)) + chunk(b"tRNS", struct.pack(">H", 0xABCD))
    data = b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(struct.pack(">x2H", 0xABCD, 0x12FF))) + chunk(b"IEND", b"")
    assert pixels(data).tolist() == [[[0xAB] * 3, [0x12] * 3]]


@pytest.mark.parametrize("name", ODD)
def test_raters_get_a_file_that_every_viewer_shows_alike(name: str) -> None:
    """Of the odd kinds viewers agree on an orientation in JPEG, on 16 bits and on CMYK: those stay as they came."""
    data, picture, tolerance = ODD[name]
    shown = for_browser(data)
    assert (shown == data) == (name in ("JPEG turned by EXIF", "16-bit grey PNG", "CMYK JPEG"))
    if shown != data:
        with Image.open(io.BytesIO(shown)) as image:
            assert (image.format, image.mode, image.getexif().get(0x0112)) == ("PNG", "RGB", None)
            assert np.abs(np.asarray(image).astype(int) - picture).max() <= tolerance
    assert np.array_equal(pixels(shown), pixels(data))


def test_ordinary_files_reach_raters_as_they_came() -> None:
    plain = Image.fromarray(gradient())
    for data in (encoded(plain, "PNG"), encoded(plain, "JPEG"), encoded(plain, "WEBP"), encoded(plain.quantize(8), "PNG")):
        assert for_browser(data) is data
    with pytest.raises(ImageError, match=r"candidate 7 .* cannot be decoded"):
        for_browser(b"junk", what="candidate 7")
