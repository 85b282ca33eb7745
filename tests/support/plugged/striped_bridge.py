"""A bridge whose model inverts the image, and a column of it by seed. It runs in another interpreter, which has Pillow."""

from __future__ import annotations

import time
from pathlib import Path

from PIL import ImageOps

PACKAGES = ("pillow",)


class Striped:
    def __init__(self, settings):
        self.settings = settings

    def edit(self, image, instruction, seed):
        time.sleep(self.settings["seconds"])
        if self.settings["traces"]:
            with Path(self.settings["traces"]).open("a") as file:
                file.write(f"odd/process {instruction} {seed}\n")
        column = (seed % image.width, 0, seed % image.width + 1, image.height)
        edited = ImageOps.invert(image)
        edited.paste(image.crop(column), column)
        return edited


def load(settings):
    return Striped(settings)
