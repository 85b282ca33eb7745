"""The one decoder: from an encoded image to the RGB picture that gates, reward model, report and editor see.

The rule follows what browsers show, because people rate what their browser shows; `for_browser` covers where they differ:

- The EXIF orientation is applied, so width and height are those of the upright picture. Orientation in other metadata (XMP) is ignored.
- Transparent pixels are blended over white, as viewers and qwen_vl_utils (the image reader of Qwen-VL models) do. The colour below a fully
  transparent pixel is arbitrary and is never used.
- 16 bits per channel become 8 by their high byte, for grey as for colour. The single transparent colour (tRNS) of such a file is ignored.
- CMYK and YCCK become RGB by Pillow's formula, with the inverted values of Adobe's JPEG files put right.
- Colour profiles (ICC) are ignored, as in the training of the published models: values are taken as sRGB. Browsers apply them, so a picture
  with a wide-gamut or print profile has slightly other colours there.
- Of an animation the first frame counts.

An opaque 8-bit RGB or greyscale file has the values that ``Image.convert("RGB")`` gives. Nothing here needs torch.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image

from reward.inputs.sample import EncodedImage, ImageError, ImageInput, StoredImage

DECODER = "decoder/2"
"""Names the rule above in the keys of units that look at pixels; changed whenever some file decodes to other pixels."""

_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What turns a picture upright, by its EXIF orientation."""


def decode(data: ImageInput, *, what: str = "image") -> Image.Image:
    """The RGB picture of an encoded image, or of a Pillow image (whose ``info`` says how it was stored); see above for the rule.

    Raises ImageError, naming `what`, for anything that does not decode completely, and for more pixels than Pillow's bound against
    decompression bombs (``Image.MAX_IMAGE_PIXELS``) allows; and what a reference raises that cannot be read.
    """
    if isinstance(data, StoredImage):
        data = data.read()
    try:
        if isinstance(data, Image.Image):
            return _picture(data)
        with Image.open(io.BytesIO(data) if isinstance(data, bytes) else data) as image:
            return _picture(image)
    except Exception as error:  # Pillow's readers raise almost any exception on damaged data
        detail = str(error) or type(error).__name__
        size = f"of {len(data)} bytes" if isinstance(data, bytes) else str(data)
        most = 2 * (Image.MAX_IMAGE_PIXELS or 0)
        expected = f"at most {most:,} pixels" if isinstance(error, Image.DecompressionBombError) else "a whole image file"
        raise ImageError(f"{what} {size} cannot be decoded ({detail}); expected {expected}") from error


def encoded(data: EncodedImage) -> bytes:
    """The file of an image, read where it is. Raises OSError for a path, ValueError for another reference, that cannot be read."""
    if isinstance(data, bytes):
        return data
    return data.read() if isinstance(data, StoredImage) else Path(data).read_bytes()


def for_browser(data: bytes, *, what: str = "image") -> bytes:
    """The file as it is where browsers and other viewers show what `decode` gives; else that picture as PNG.

    Another file is needed for transparency (viewers have backgrounds of their own), animations, and an EXIF orientation outside JPEG
    (Chromium ignores it in WebP). Raises ImageError as `decode` does, for what it has to decode.
    """
    try:
        with Image.open(io.BytesIO(data)) as image:
            turned = image.format not in ("JPEG", "MPO") and _orientation(image) in _UPRIGHT
            if not (turned or image.has_transparency_data or (getattr(image, "n_frames", 1) > 1 and image.format != "MPO")):
                return data
    except Exception:  # decode says what is wrong with it
        pass
    buffer = io.BytesIO()
    decode(data, what=what).save(buffer, "PNG")
    return buffer.getvalue()


def _picture(image: Image.Image) -> Image.Image:
    image.load()  # of some formats the metadata are complete only then
    turn = _UPRIGHT.get(_orientation(image))
    found = _rgb(image)
    found.info.clear()  # so that a picture that is decoded twice is not turned twice
    return found if turn is None else found.transpose(turn)


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # 16 bits of grey; convert() would cut them at 255
        values = np.asarray(image).astype(np.int64).clip(0, 65535)
        return Image.fromarray((values >> 8).astype(np.uint8)).convert("RGB")
    if not image.has_transparency_data:
        return image.convert("RGB")
    blended = Image.new("RGB", image.size, "white")
    colours = image.convert("RGBA")
    blended.paste(colours, mask=colours)
    return blended


def _orientation(image: Image.Image) -> int | None:
    """The EXIF orientation, 1 to 8; None where there is none or the EXIF block is damaged, which browsers pass over as well."""
    exif = Image.Exif()
    try:
        exif.load(image.info.get("exif", b""))
    except Exception:  # it parses unchecked bytes
        return None
    return exif.get(ExifTags.Base.Orientation)
