"""An editor in an interpreter of its own: started when it is opened, restarted after a crash, killed when it hangs."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from stages.editors.editor import Edited, EditRequest, Failure
from stages.editors.process import child
from stages.editors.process.process import ChildProcess, ProcessFailure

ATTEMPTS = 2
"""An edit that ends its process, or keeps it waiting, this many times is a failure; a model whose loading ends its process cannot be
loaded."""


class ProcessEditor:
    """An editor whose model is loaded by ``bridge`` in a process of the interpreter ``python``.

    ``load``: plain JSON values for the bridge. Time-outs are in seconds. Raises ``ValueError`` with the process's last output if the model
    cannot be loaded.
    """

    def __init__(self, name: str, python: str, bridge: Path, load: dict[str, Any], start_seconds: float, edit_seconds: float) -> None:
        self.name = name
        self.python = python
        self.bridge = bridge
        self.load = load
        self.start_seconds = start_seconds
        self.edit_seconds = edit_seconds
        self._process: ChildProcess | None = None
        self._versions: dict[str, str] = {}
        self._savings = 0
        self._number = 0
        self._start()

    def edit(self, batch: Sequence[EditRequest]) -> list[Edited | Failure]:
        """One result per request. Raises ``torch.OutOfMemoryError`` where the process does."""
        return [self._edit(request) for request in batch]

    def save_memory(self) -> bool:
        """Turn on the bridge's next saving."""
        header, _ = self._ask({"ask": "save_memory"}, [])
        self._savings += header["saved"]
        return header["saved"]

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.close()
            self._process = None

    def _edit(self, request: EditRequest) -> Edited | Failure:
        question = {"ask": "edit", "instruction": request.instruction, "seed": request.seed}
        image = child.encode(request.image)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                header, images = self._ask(question, [image])
                break
            except ProcessFailure as failure:
                if attempt == ATTEMPTS:
                    return Failure(failure.reason, f"{attempt} times {failure}")
        if header.get("out_of_memory"):
            import torch

            raise torch.OutOfMemoryError(header["error"])
        if "error" in header:
            return Failure("error", f"{self.name}: {header['error']}")
        return _edited(images[0], request.image.size, (("versions", self._versions),))

    def _ask(self, question: dict[str, Any], images: Sequence[bytes]) -> tuple[dict[str, Any], list[bytes]]:
        """The answer to a question, after a new start if the last one ended the process."""
        if self._process is None:
            self._start()
        assert self._process is not None
        self._number += 1
        process = self._process
        try:
            header, made = process.ask({**question, "request": self._number}, images, self.edit_seconds)
            expected = int(question["ask"] == "edit" and "error" not in header)
            if header.get("request") != self._number or len(made) != expected:
                reason = f"answered request {header.get('request')} with {len(made)} images, not request {self._number} with {expected}"
                process.close()
                raise ProcessFailure("bad-answer", f"the process of {self.name} {reason}")
        except ProcessFailure:
            self._process = None
            raise
        return header, made

    def _start(self) -> None:
        """Raises ``ValueError`` if the process cannot be started or the model cannot be loaded."""
        process, header = self._loaded()
        if "versions" not in header:
            process.close()
            raise ValueError(f"editor {self.name} could not be loaded by {self.python}: {header.get('error')}")
        self._process, self._versions = process, header["versions"]
        for _ in range(self._savings):  # that an earlier process had turned on
            self._ask({"ask": "save_memory"}, [])

    def _loaded(self) -> tuple[ChildProcess, dict[str, Any]]:
        """A process that was told to load the model, and its answer."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                process = ChildProcess(self.name, self.python, self.bridge)
                return process, process.ask(self.load, [], self.start_seconds)[0]
            except OSError as error:
                raise ValueError(f"editor {self.name}: {self.python} cannot be started: {error.strerror}") from error
            except ProcessFailure as failure:
                if failure.reason != "crashed" or attempt == ATTEMPTS:
                    raise ValueError(f"editor {self.name} could not be loaded: {failure}") from failure
        raise AssertionError("the last attempt returns or raises")


def _edited(data: bytes, size: tuple[int, int], record: tuple[tuple[str, Any], ...]) -> Edited | Failure:
    """The decoded edit; a failure where it is no image, or one of another size, which is said before it is decoded."""
    try:
        image = Image.open(io.BytesIO(data), formats=["PNG"])
        if image.size != size:
            return Failure("wrong-size", f"the edit of an image of {_size(size)} pixels has {_size(image.size)}")
        return Edited(image.convert("RGB"), record=record)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        return Failure("no-image", f"what came in place of an edit is no image: {error}")


def _size(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"
