"""A bridge whose model does what the instruction says, mostly wrong things. It runs in another interpreter."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import random
import struct
import subprocess
import sys
import time
from pathlib import Path

import toolkit
from PIL import Image, ImageOps

PACKAGES = ("toolkit",)
ANSWERS = int(sys.argv[2])


def send(header, images=(), whole=True):
    """A message past the program that should send it."""
    text = json.dumps({**header, "images": [len(image) for image in images]}).encode()
    message = struct.pack(">4sI", b"EDIT", len(text)) + text + b"".join(images)
    message = message if whole else message[: len(message) // 2]
    while message:
        message = message[os.write(ANSWERS, message) :]


class OutOfMemoryError(Exception):
    """Called as PyTorch's."""


class Odd:
    def __init__(self, settings):
        self.settings = settings
        self.savings = 0
        self.edits = 0

    def save_memory(self):
        self.savings += 1
        return self.savings < 2

    def edit(self, image, instruction, seed):
        self.edits += 1
        request = self.edits
        if instruction == "invert":
            return ImageOps.invert(image)
        if instruction == "random":
            return Image.new("RGB", image.size, tuple(random.randrange(256) for _ in range(3)))
        if instruction == "state":
            return Image.new("RGB", image.size, (self.edits, self.savings, int(toolkit.VERSION.split(".")[0])))
        if instruction == "print":
            os.write(1, b"EDIT noise \xff\xfe on stdout\n" * 5000)
            print("noise on stderr", file=sys.stderr)
            return image
        if instruction == "raise":
            raise KeyError("no such layer")
        if instruction == "memory":
            raise OutOfMemoryError("CUDA out of memory")
        if instruction == "die":
            print("last words", flush=True)
            os._exit(3)
        if instruction == "die once":
            marker = Path(self.settings["marker"])
            if not marker.exists():
                marker.touch()
                os.kill(os.getpid(), 11)
            return ImageOps.invert(image)
        if instruction == "hang":
            ctypes.PyDLL(None).sleep(600)  # with the interpreter's lock
        if instruction == "child and hang":
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            Path(self.settings["marker"]).write_text(f"{os.getpid()} {child.pid}")
            ctypes.PyDLL(None).sleep(600)
        if instruction == "garbage":
            os.write(ANSWERS, b"oops\x00\x00\x01\x00Loading checkpoint shards: 100%|####| 3/3\n")  # 256 might be a length
            time.sleep(600)
        if instruction == "half a message":
            send({"request": request}, [b"x" * 100_000], whole=False)
            os._exit(0)
        if instruction == "two images":
            send({"request": request}, [b"a", b"b"])
        if instruction == "no image":
            send({"request": request})
        if instruction == "answer twice":
            send({"request": request}, [picture(image)])
        if instruction == "no picture":
            send({"request": request}, [b"<html>"])
            time.sleep(0.2)
            os._exit(0)
        if instruction == "text":
            return "an answer in words"
        if instruction == "crop":
            return image.crop((0, 0, 1, 1))
        return image


def picture(image):
    import io

    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def load(settings):
    assert importlib.util.find_spec("stages") is None, "the packages of this project are on the import path"
    assert importlib.util.find_spec("canvas") is None, "the folder of the program is on the import path"
    assert not [name for name in os.environ if name.startswith("PYTHON")]
    if settings.get("load") == "slow":
        time.sleep(600)
    if settings.get("load") == "die once" and not Path(settings["marker"]).exists():
        Path(settings["marker"]).touch()
        os._exit(3)
    if settings.get("load") == "die always":
        os.kill(os.getpid(), 9)
    if settings.get("load") == "fail":
        raise OSError("weights.safetensors is not there")
    return Odd(settings)
