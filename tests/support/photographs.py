"""A folder of photographs with edits of several editors: crops of a photograph that matplotlib ships, edited by Pillow."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.cbook
from PIL import Image, ImageEnhance, ImageOps

SIDE = 96
EDITORS = {
    "flux-kontext": lambda image: ImageEnhance.Color(image).enhance(2.0),
    "qwen-edit": ImageOps.grayscale,
    "step1x": lambda image: ImageEnhance.Brightness(image).enhance(1.4),
}
"""What each does to an image whatever the instruction says."""


def photograph(number: int) -> Image.Image:
    """A crop that no other number below 20 has, RGB [SIDE, SIDE]."""
    with matplotlib.cbook.get_sample_data("grace_hopper.jpg") as file:
        whole = Image.open(file).convert("RGB")
    left, top = SIDE * (number % 5), SIDE * (number // 5)
    return whole.crop((left, top, left + SIDE, top + SIDE))


def encoded(image: Image.Image, form: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, quality=90)
    return buffer.getvalue()


def edited_photographs(count: int = 5) -> list[dict[str, Any]]:
    """A row per edit, images as bytes: each photograph by every editor, by the first with two seeds."""
    rows = []
    for number in range(count):
        before = photograph(number)
        source, instruction = encoded(before, "JPEG"), f"make part {number} of the picture brighter"
        for editor, edit in EDITORS.items():
            for seed in (0, 1) if editor == "flux-kontext" else (0,):
                after = ImageOps.mirror(edit(before)) if seed else edit(before)
                made = {"editor": editor, "seed": str(seed), "edited": encoded(after, ("PNG", "JPEG", "WEBP")[number % 3])}
                rows.append({"source": source, "instruction": instruction, "licence": "public domain", **made})
    return rows


def write_images(folder: Path, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows with paths in place of images, which are written there; equal sources are one file."""
    known: dict[bytes, str] = {}
    found = []
    for number, row in enumerate(rows):
        for role in ("source", "edited"):
            name = f"{role}/{number}.img"
            if known.setdefault(row[role], name) == name:
                (folder / role).mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(row[role])
        found.append({**row, "source": known[row["source"]], "edited": known[row["edited"]]})
    return found


def write_table(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """A CSV of rows, images beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    listed = write_images(path.parent, rows)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(listed[0]))
        writer.writeheader()
        writer.writerows(listed)
    return path
