"""Make the edited photographs of this folder from its three sources, with edits.jsonl, which lists them.

    python configs/photographs/make_edits.py

Of the three edits of a photograph one does what the instruction says; the others do something else, or nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from PIL import Image, ImageEnhance, ImageFilter, ImageOps

HERE = Path(__file__).resolve().parent
Edit = Callable[[Image.Image], Image.Image]
LICENCES = {"cat": "CC0-1.0", "coffee": "CC0-1.0", "rocket": "public domain"}


def tinted(red: float, blue: float) -> Edit:
    """An edit that multiplies the red and the blue channel."""

    def edit(image: Image.Image) -> Image.Image:
        channels = image.split()
        return Image.merge("RGB", (channels[0].point(lambda v: v * red), channels[1], channels[2].point(lambda v: v * blue)))

    return edit


EDITS: dict[tuple[str, str], dict[str, Edit]] = {
    ("cat", "make the photograph black and white"): {
        "grey": lambda image: ImageOps.grayscale(image).convert("RGB"),
        "brighter": lambda image: ImageEnhance.Brightness(image).enhance(1.3),
        "unchanged": lambda image: image,
    },
    ("coffee", "make the colours warmer"): {
        "warmer": tinted(1.2, 0.75),
        "cooler": tinted(0.8, 1.25),
        "blurred": lambda image: image.filter(ImageFilter.GaussianBlur(6)),
    },
    ("rocket", "turn the picture upside down"): {
        "upside-down": ImageOps.flip,
        "mirrored": ImageOps.mirror,
        "darker": lambda image: ImageEnhance.Brightness(image).enhance(0.6),
    },
}


def main() -> None:
    """Write the edits and their list; each edited file is named after its source and what was done."""
    rows = []
    for (source, instruction), edits in EDITS.items():
        with Image.open(HERE / f"{source}.jpg") as file:
            image = file.convert("RGB")
        for done, edit in edits.items():
            name = f"{source}-{done}.jpg"
            edit(image).save(HERE / name, quality=85, optimize=True)
            rows.append({"source": f"{source}.jpg", "instruction": instruction, "edited": name, "id": f"{source}-{done}"})
            rows[-1]["licence"] = LICENCES[source]
    (HERE / "edits.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
