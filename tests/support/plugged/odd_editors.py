"""Editors that a package brings by its entry point: deterministic, counted, and at the word of an instruction badly behaved."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from stages.editors.editor import Edited, EditorSpec, EditRequest, Failure, Licence
from stages.editors.http.settings import KontextSettings
from stages.editors.http.specs import http_editor
from stages.editors.process.environment import LOCKS, Environment
from stages.editors.process.settings import ProcessSettings
from stages.editors.process.specs import process_editor
from stages.engine.config import Config


class OddSettings(Config):
    """tone: added to every pixel. seconds: of an edit. traces: a file that gets a line per edit. loads: whether it can be loaded. wild:
    whether it ends its process at the word "crash", and sleeps at "hang"."""

    tone: int = 0
    seconds: float = 0.0
    traces: str = ""
    loads: bool = True
    wild: bool = False


class OddProcessSettings(ProcessSettings):
    """seconds, traces: as of the others."""

    seconds: float = 0.0
    traces: str = ""


class OddEditor:
    """Draws stripes by seed. It refuses at "refuse" and raises at "raise"."""

    def __init__(self, settings: OddSettings, name: str) -> None:
        if not settings.loads:
            raise OSError("the weights are not there")
        self.settings, self.name = settings, name

    def edit(self, batch: Sequence[EditRequest]) -> list[Edited | Failure]:
        time.sleep(self.settings.seconds * len(batch))
        if self.settings.traces:
            with Path(self.settings.traces).open("a") as file:
                file.write("".join(f"{self.name} {request.instruction} {request.seed}\n" for request in batch))
        return [self._edit(request) for request in batch]

    def _edit(self, request: EditRequest) -> Edited | Failure:
        if self.settings.wild and "crash" in request.instruction:
            os._exit(1)
        if self.settings.wild and "hang" in request.instruction:
            time.sleep(1000)
        if "refuse" in request.instruction:
            return Failure("refused", "it does not edit this")
        if "raise" in request.instruction:
            raise TypeError("no such thing")
        if "always black" in request.instruction or ("black" in request.instruction and request.seed % 2 == 0):
            return Edited(Image.new("RGB", request.image.size))
        pixels = np.asarray(request.image).astype(np.int64) + self.settings.tone
        pixels[request.seed % pixels.shape[0]] += 1 + request.seed % 200
        return Edited(Image.fromarray((pixels % 256).astype(np.uint8)))

    def save_memory(self) -> bool:
        return False

    def close(self) -> None:
        pass


def says_five(image: Image.Image, instruction: str) -> bool:
    """A content filter that finds edits by their instruction."""
    return "five" in instruction


def raises(image: Image.Image, instruction: str) -> bool:
    """A content filter that is broken."""
    raise TypeError("no such thing")


def _spec(name: str, **more: Any) -> EditorSpec:
    return EditorSpec(
        name=name,
        revision="1",
        open=lambda settings, flow: OddEditor(settings, name),
        settings=OddSettings,
        identity=lambda settings, flow: {"tone": settings.tone},
        **{"licence": Licence("MIT"), "max_batch": 2} | more,
    )


EDITORS = [
    _spec("odd/plain"),
    _spec("odd/other"),
    _spec(
        "odd/closed", licence=Licence("Odd-NC", "no commercial use", open=False), memory_gb=24.0, seconds=30.0, seconds_source="its authors"
    ),
    process_editor(
        "odd/process",
        Environment("odd", LOCKS / "omnigen2.txt", "3.11", "none"),
        Path(__file__).with_name("striped_bridge.py"),
        OddProcessSettings,
        "odd",
        None,
    ),
    replace(http_editor("odd/http", "odd", ("vllm",), KontextSettings), max_batch=2),
]
