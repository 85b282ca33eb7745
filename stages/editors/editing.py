"""What all users of an editor share: canvas, batches, memory, random generators, failures.

Users are generate, evaluate-editor and training. They give requests with the images as they are, and get one result per request.
"""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from typing import Any, Self

import numpy as np

from stages.config import FlowConfig
from stages.editors.editor import Edited, Editor, EditorSpec, EditRequest, Failure
from stages.editors.on_canvas import OnCanvas

Result = Edited | Failure


class AcceleratorLost(RuntimeError):
    """The accelerator can do nothing more in this process, as after a failed assertion on it: only another process can go on."""


class Editing:
    """A loaded editor with its spec. As a context manager it closes the editor."""

    def __init__(self, spec: EditorSpec, editor: Editor) -> None:
        self.spec = spec
        self.editor: Editor = OnCanvas(editor, spec.canvas) if spec.canvas else editor
        self._fitting: dict[tuple[int, int], int] = {}
        """Requests that fit into memory together, by canvas, where that is known to be less than the spec's."""
        self._savings = 0

    @classmethod
    def of(cls, spec: EditorSpec, settings: Any, flow: FlowConfig) -> Self:
        """Load the editor. Raises what its ``open`` raises."""
        return cls(spec, spec.open(settings, flow))

    def become(self, spec: EditorSpec, settings: Any) -> bool:
        """Make it another editor, keeping what both have in memory; False, with nothing changed, where they have nothing in common."""
        return spec is self.spec and spec.become(self.editor, settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free what the editor holds."""
        self.editor.close()

    def canvas(self, size: tuple[int, int]) -> tuple[int, int]:
        """Of a source of that (width, height) in pixels; its own size where the editor has no canvas."""
        return self.spec.canvas(*size) if self.spec.canvas else size

    def edit_all(self, requests: Iterable[EditRequest]) -> Iterator[Result]:
        """One result per request, in their order. Requests in succession are a batch where they fit together."""
        for batch in self.batches(requests):
            yield from self.edit(batch)

    def batches(self, requests: Iterable[EditRequest]) -> Iterator[list[EditRequest]]:
        """The requests in their order, cut where the canvas changes, or the instruction of an editor that takes one, and by size."""

        def alike(request: EditRequest) -> tuple[Any, ...]:
            return self.canvas(request.image.size), request.instruction if self.spec.one_instruction else ""

        most = 1 if self.spec.seeds_globally else self.spec.max_batch
        for _, same in groupby(requests, key=alike):
            batch: list[EditRequest] = []
            for request in same:
                batch.append(request)
                if len(batch) == most:
                    yield batch
                    batch = []
            if batch:
                yield batch

    def edit(self, batch: Sequence[EditRequest]) -> list[Result]:
        """Results of one batch (:meth:`batches`). Each says in its record how many requests were edited together.

        Where memory runs out, the batch is halved; one request that does not fit gets the editor's savings of memory, and fails when there
        are none left. What raises another error is tried alone, and fails when it raises again. A source never takes the place of an edit.
        Raises ``AcceleratorLost``.
        """
        canvas = self.canvas(batch[0].image.size)
        size = min(len(batch), self._fitting.get(canvas, len(batch)))
        done: list[Result] = []
        while len(done) < len(batch):
            part = batch[len(done) : len(done) + size]
            try:
                done += self._once(part)
                continue
            except Exception as error:  # plug-ins and their libraries raise anything
                message, out_of_memory = _line(error), isinstance(error, _memory_errors())
                if not out_of_memory and isinstance(error, _fatal_errors()):
                    raise AcceleratorLost(message) from error
            _free_memory()
            if not out_of_memory:
                done += self._alone(part) if len(part) > 1 else [Failure("error", message)]
            elif len(part) > 1:
                size = self._fitting[canvas] = len(part) // 2
            elif self.editor.save_memory():
                self._savings += 1
            else:
                done.append(Failure("out-of-memory", f"one edit of {canvas[0]}x{canvas[1]} pixels does not fit into memory: {message}"))
        return done

    def _alone(self, batch: Sequence[EditRequest]) -> list[Result]:
        return [result for request in batch for result in self.edit([request])]

    def _once(self, batch: Sequence[EditRequest]) -> list[Result]:
        if self.spec.seeds_globally:
            assert len(batch) == 1, "an editor that draws from the global generators gets one request at a time"
            _seed_globally(batch[0].seed)
        results = self.editor.edit(batch)
        if len(results) != len(batch):
            raise ValueError(f"{self.spec.name} gave {len(results)} results for {len(batch)} requests")
        how: dict[str, Any] = {"batch": len(batch)} | ({"memory_savings": self._savings} if self._savings else {})
        return [replace(result, record=(*result.record, *how.items())) if isinstance(result, Edited) else result for result in results]


def _memory_errors() -> tuple[type[BaseException], ...]:
    """What Python and torch raise when memory runs out; torch is not imported for it."""
    torch = sys.modules.get("torch")
    return (MemoryError, torch.OutOfMemoryError) if torch is not None else (MemoryError,)


def _fatal_errors() -> tuple[type[BaseException], ...]:
    """What torch raises when an accelerator fails."""
    torch = sys.modules.get("torch")
    return (torch.AcceleratorError,) if torch is not None else ()


def _free_memory() -> None:
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


def _seed_globally(seed: int) -> None:
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)  # of all devices


def _line(error: BaseException) -> str:
    """The first line of an error's message, at most 300 characters, after its kind."""
    text = str(error).strip()
    with suppress(IndexError):
        text = text.splitlines()[0]
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__
