"""The other side of :mod:`stages.editors.process.process`: the program that an environment's own interpreter runs.

One file, with the standard library and Pillow only, for Python 3.9 and later: the environments have none of this project's packages. It
reads requests from a pipe, hands them to a bridge, and writes answers to a second pipe; standard output and standard error are a log.
A bridge is a file beside it, or anybody's, with ``load(settings)``, which returns an object with ``edit(image, instruction, seed)`` and, if
the model can save memory, ``save_memory()``; ``PACKAGES`` names the packages whose versions are recorded.

A message is four letters, the length of its JSON in four bytes, the JSON, and the images that the JSON's ``images`` gives the lengths of.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import io
import json
import os
import platform
import random
import signal
import struct
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

PREFIX = struct.Struct(">4sI")
MAGIC = b"EDIT"
LONGEST_JSON = 16 << 20
LARGEST_IMAGE = 1 << 30
"""Bytes. An encoded image is smaller; a larger number is not a length but garbage."""


def pack(header: dict[str, Any], images: Sequence[bytes] = ()) -> bytes:
    """A message."""
    text = json.dumps({**header, "images": [len(image) for image in images]}).encode()
    return b"".join([PREFIX.pack(MAGIC, len(text)), text, *images])


def unpack(read: Callable[[int], bytes]) -> tuple[dict[str, Any], list[bytes]]:
    """The next message; ``read(count)`` gives exactly that many bytes. Raises ``ValueError`` for bytes that are no message."""
    magic, length = PREFIX.unpack(read(PREFIX.size))
    if magic != MAGIC or length > LONGEST_JSON:
        raise ValueError("what came is no message")
    header = json.loads(read(length))
    lengths = header.pop("images", None) if isinstance(header, dict) else None
    if not isinstance(lengths, list) or not all(isinstance(count, int) and 0 <= count <= LARGEST_IMAGE for count in lengths):
        raise ValueError("what came is no message")
    return header, [read(count) for count in lengths]


def encode(image: Any) -> bytes:
    """A PIL image as PNG without compression: it goes through a pipe, not over a network."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=0)
    return buffer.getvalue()


def main(requests: int, answers: int, lifeline: int, bridge: str) -> None:
    """Load the bridge's model, then answer one request after the other until the pipe is closed."""
    for pipe in (requests, answers, lifeline):
        os.set_inheritable(pipe, False)  # a program that the model starts must not keep them open
    _watch(lifeline, (requests, answers))

    def read(count: int) -> bytes:
        parts = []
        while count:
            part = os.read(requests, min(count, 1 << 20))
            if not part:
                raise EOFError
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def answer(header: dict[str, Any], images: Sequence[bytes] = ()) -> None:
        left = memoryview(pack(header, images))
        while left:
            left = left[os.write(answers, left) :]

    try:
        settings, _ = unpack(read)
        try:
            editor, versions = _load(bridge, settings)
        except Exception as error:
            answer({"error": _sentence(error)})
            return
        answer({"versions": versions})
        while True:
            header, images = unpack(read)
            answer(*_done(editor, header, images))
    except EOFError:
        return


def _watch(lifeline: int, others: Sequence[int]) -> None:
    """Start a process that kills this one's group as soon as the other end of the lifeline is closed, by whatever death.

    A thread could not: a model that hangs in C code may hold the interpreter's lock.
    """
    if os.fork():
        os.close(lifeline)
        return
    for pipe in others:
        os.close(pipe)
    try:
        os.read(lifeline, 1)
    finally:
        os.killpg(0, signal.SIGKILL)


def _load(bridge: str, settings: dict[str, Any]) -> tuple[Any, dict[str, str]]:
    """What ``load`` of the bridge returns, and the versions of what it uses."""
    checkout = settings.get("checkout")
    if checkout:
        sys.path.insert(0, checkout)
    spec = importlib.util.spec_from_file_location("bridge", bridge)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    versions = {"python": platform.python_version()}
    versions.update({package: importlib.metadata.version(package) for package in module.PACKAGES})
    if checkout:
        versions["checkout"] = _commit(checkout)
    if settings.get("hub") and not settings.get("weights"):
        from huggingface_hub import snapshot_download

        settings["weights"] = snapshot_download(settings["hub"], revision=settings["revision"])
        versions["weights"] = Path(settings["weights"]).name
    return module.load(settings), versions


def _commit(checkout: str) -> str:
    """The commit that is checked out, with ``-dirty`` after it where files were changed."""
    command = ["git", "-C", checkout, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _done(editor: Any, header: dict[str, Any], images: Sequence[bytes]) -> tuple[dict[str, Any], list[bytes]]:
    """The answer to a request."""
    number = {"request": header["request"]}
    if header["ask"] == "save_memory":
        save = getattr(editor, "save_memory", None)
        return {**number, "saved": bool(save and save())}, []
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = None  # what comes was decoded by the pipeline before
    _seed(header["seed"])
    try:
        edited = editor.edit(Image.open(io.BytesIO(images[0])), header["instruction"], header["seed"])
        return number, [encode(edited.convert("RGB"))]
    except Exception as error:
        traceback.print_exc()
        memory = type(error).__name__ == "OutOfMemoryError"
        return {**number, "error": _sentence(error), "out_of_memory": memory}, []


def _seed(seed: int) -> None:
    """Seed every global generator: most of these models draw from them, too."""
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)


def _sentence(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
