"""Sound edits, and the same edits with a defect planted: what the gates are measured on.

Sound are the real triplets in the folder ``triplets`` of a checkout's shared data, and exact edits of the toy world. Every defect is a
function from sound edits to spoilt ones.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter

from reward.inputs.decoding import decode
from stages.datasets.io.cells import by_characters
from stages.datasets.readers import Edit
from stages.engine.images import png
from stages.world import flaws, items

Defect = Callable[[Sequence[Edit]], list[Edit]]
BICUBIC, LANCZOS = Image.Resampling.BICUBIC, Image.Resampling.LANCZOS


def real_triplets(folder: Path) -> list[Edit]:
    """The real triplets; the data set that each comes from is its task."""
    rows = [json.loads(line) for line in (folder / "triplets.jsonl").read_text(encoding="utf-8").splitlines()]
    return [
        edit_of(
            row["id"], row["instruction"], (folder / row["source"]).read_bytes(), (folder / row["candidate"]).read_bytes(),
            (row["source"], row["candidate"]), row["set"],
        )
        for row in rows
    ]  # fmt: skip


def drawn_edits(count: int, size: int) -> list[Edit]:
    """Exact edits of the toy world."""
    made = []
    for number in range(count):
        item = items.item(0, "noisy", number)
        renders = flaws.renders_of(item, size)
        made.append(edit_of(f"world:{number}", item.instruction, png(renders.source), png(renders.target), (None, None), item.kind))
    return made


def edit_of(name: str, instruction: str, source: bytes, edited: bytes, paths: tuple[str | None, str | None], task: str) -> Edit:
    """An edit as a reader returns it."""
    return Edit(name, name, "planted", source, paths[0], instruction, edited, paths[1], by_characters(instruction), task, "")


def encoded(image: Image.Image, form: str = "PNG", quality: int = 90) -> bytes:
    """An image file."""
    buffer = io.BytesIO()
    image.save(buffer, form, quality=quality)
    return buffer.getvalue()


def opened(data: bytes) -> Image.Image:
    """RGB image of a file."""
    return decode(data)


def on_edited(change: Callable[[Image.Image], Image.Image], form: str = "JPEG", quality: int = 90) -> Defect:
    """Spoil the edited image."""
    return lambda edits: [replace(edit, edited=encoded(change(opened(edit.edited)), form, quality)) for edit in edits]


def on_both(change: Callable[[Image.Image], Image.Image], form: str = "JPEG", quality: int = 90) -> Defect:
    """Spoil both images."""
    return lambda edits: [
        replace(edit, **{role: encoded(change(opened(getattr(edit, role))), form, quality) for role in ("source", "edited")})
        for edit in edits
    ]


def copied(form: str, quality: int, scale: float = 1.0) -> Defect:
    """The edited image is the source, encoded again, perhaps at another size."""
    return lambda edits: [replace(edit, edited=encoded(scaled(opened(edit.source), scale), form, quality)) for edit in edits]


def asking(instructions: Sequence[str]) -> Defect:
    """Other instructions, one after the other."""
    return lambda edits: [
        replace(edits[number % len(edits)], instruction=text, language=by_characters(text)) for number, text in enumerate(instructions)
    ]


def swapped(with_names: bool) -> Defect:
    """Source and edited image exchanged, with the names of the files or without any."""
    return lambda edits: [
        replace(
            edit, source=edit.edited, edited=edit.source,
            source_path=edit.edited_path if with_names else None, edited_path=edit.source_path if with_names else None,
        )
        for edit in edits
    ]  # fmt: skip


def nameless(edits: Sequence[Edit]) -> list[Edit]:
    """The same without names of files."""
    return [replace(edit, source_path=None, edited_path=None) for edit in edits]


def scaled(image: Image.Image, factor: float, how: Image.Resampling = LANCZOS) -> Image.Image:
    """Another size."""
    return image if factor == 1 else image.resize((max(1, round(image.width * factor)), max(1, round(image.height * factor))), how)


def blown_up(factor: float, how: Image.Resampling) -> Callable[[Image.Image], Image.Image]:
    """Shrunk and enlarged again to its old size."""
    return lambda image: scaled(image, 1 / factor).resize(image.size, how)


def to_longest_side(side: int) -> Callable[[Image.Image], Image.Image]:
    """Shrunk to a longest side."""
    return lambda image: scaled(image, side / max(image.size))


def squeezed(image: Image.Image) -> Image.Image:
    """Three quarters of its width."""
    return image.resize((max(1, image.width * 3 // 4), image.height), LANCZOS)


def cropped(image: Image.Image) -> Image.Image:
    """The middle square; an image that is nearly square loses a fifth of its height instead."""
    side = min(image.size)
    height = side if max(image.size) > 1.15 * side else side * 4 // 5
    width = side
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height))


def shifted_colours(amount: int) -> Callable[[Image.Image], Image.Image]:
    """Redder and less blue."""
    return lambda image: Image.fromarray(np.clip(np.asarray(image, np.int16) + np.array([amount, 0, -amount]), 0, 255).astype(np.uint8))


def gamma(value: float) -> Callable[[Image.Image], Image.Image]:
    """Other mid-tones."""
    return lambda image: image.point([round(255 * (level / 255) ** value) for level in range(256)] * 3)


def blurred(image: Image.Image) -> Image.Image:
    """As of a decoder that loses detail."""
    return image.filter(ImageFilter.GaussianBlur(3))


def moved(image: Image.Image) -> Image.Image:
    """The whole picture zoomed by 3 %, as of an editor that draws all of it anew."""
    width, height = image.size
    return image.resize((width, height), BICUBIC, box=(0.015 * width, 0.015 * height, 0.985 * width, 0.985 * height))


NOTHING = (
    "no change", "No changes needed.", "Keep the image as is", "leave it unchanged", "Do nothing", "...", "!!!", "🙂", "Same image.",
    "none", "Do not edit this picture", "please keep everything the same", "Don't change anything!", "N/A", "return the original image",
    "-", "No edit", "make no modifications to the photo", "Copy the image.", "Leave the photo alone", "不做任何修改", "保持不变",
    "无需修改", "It is perfect already", "Looks good to me", "I like it the way it is", "Nothing to do here",
    "just give me the same thing back",
)  # fmt: skip
"""The last five would need an understanding of the sentence."""
OTHER_SCRIPTS = (
    "把天空变成粉红色", "让她微笑", "Сделай небо розовым", "Удали собаку с фотографии", "空をピンク色にしてください", "犬を消して",
    "하늘을 분홍색으로 바꿔줘", "اجعل السماء وردية", "ทำให้ท้องฟ้าเป็นสีชมพู", "आसमान को गुलाबी करो", "Κάνε τον ουρανό ροζ",
    "将文本 'TRAIN' 替换为 'PLANE'",
)  # fmt: skip
LATIN_SCRIPT = ("Rends le ciel rose", "Mach den Himmel rosa", "Haz el cielo rosa", "Làm cho bầu trời màu hồng", "Zrób niebo różowe")

PLANTED: tuple[tuple[str, str, Defect], ...] = (
    ("size", "both shrunk to 96 pixels", on_both(to_longest_side(96))),
    ("aspect", "edit squeezed to three quarters of its width", on_edited(squeezed)),
    ("aspect", "edit cropped to a square, or by a fifth", on_edited(cropped)),
    ("unchanged", "copy, same bytes", lambda edits: [replace(edit, edited=edit.source) for edit in edits]),
    ("unchanged", "copy, JPEG quality 90", copied("JPEG", 90)),
    ("unchanged", "copy, JPEG quality 75", copied("JPEG", 75)),
    ("unchanged", "copy, JPEG quality 50", copied("JPEG", 50)),
    ("unchanged", "copy, WebP quality 80", copied("WEBP", 80)),
    ("unchanged", "copy at half size, JPEG quality 85", copied("JPEG", 85, 0.5)),
    ("upscaled", "edit enlarged twice, bicubic", on_edited(blown_up(2, BICUBIC))),
    ("upscaled", "edit enlarged twice, Lanczos", on_edited(blown_up(2, LANCZOS))),
    ("upscaled", "edit enlarged three times, bicubic", on_edited(blown_up(3, BICUBIC))),
    ("upscaled", "edit enlarged four times, bicubic", on_edited(blown_up(4, BICUBIC))),
    ("upscaled", "edit enlarged four times, Lanczos, JPEG 75", on_edited(blown_up(4, LANCZOS), quality=75)),
    ("swapped", "exchanged, with file names", swapped(with_names=True)),
    ("swapped", "exchanged, no file names", swapped(with_names=False)),
    ("drift", "edit redder by 4 levels", on_edited(shifted_colours(4))),
    ("drift", "edit redder by 8 levels", on_edited(shifted_colours(8))),
    ("drift", "edit with gamma 1.2", on_edited(gamma(1.2))),
    ("redrawn", "edit blurred, sigma 3", on_edited(blurred)),
    ("redrawn", "edit zoomed by 3 %", on_edited(moved)),
    ("near_duplicate", "again, JPEG quality 85", on_both(lambda image: image, quality=85)),
    ("near_duplicate", "again, JPEG quality 50", on_both(lambda image: image, quality=50)),
    ("near_duplicate", "again, nine tenths of the size", on_both(lambda image: scaled(image, 0.9))),
    ("near_duplicate", "again, redder by 8 levels", on_both(shifted_colours(8))),
    ("language", "in another script", asking(OTHER_SCRIPTS)),
    ("language", "in another language, Latin letters", asking(LATIN_SCRIPT)),
    ("nothing_asked", "28 ways of asking for nothing", asking(NOTHING)),
)
"""Gate, what was planted, how."""
