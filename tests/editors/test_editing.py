"""Editing: batches share a canvas, memory is halved, one failure costs one edit."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from stages.editors.editing import AcceleratorLost, Editing
from stages.editors.editor import Edited, EditorSpec, EditRequest, Failure, Licence


class Recorder:
    """Takes at most ``fits`` images at a time, raises at some instructions, and says what it was asked for."""

    def __init__(self, fits: int = 99, savings: int = 0) -> None:
        self.fits, self.savings = fits, savings
        self.asked: list[list[str]] = []

    def edit(self, batch: Sequence[EditRequest]) -> list[Edited | Failure]:
        self.asked.append([request.instruction for request in batch])
        if len(batch) > self.fits:
            raise MemoryError("no room for 3 GB")
        for request in batch:
            if request.instruction == "raise":
                raise TypeError("missing argument\nand more")
        if batch[0].instruction == "assert":
            raise torch.AcceleratorError("device-side assert triggered")
        if batch[0].instruction == "short":
            return []
        draws = random.random(), float(np.random.rand())
        return [Failure("refused", "no") if r.instruction == "refuse" else Edited(r.image, record=(("draws", draws),)) for r in batch]

    def save_memory(self) -> bool:
        self.savings, self.fits = self.savings - 1, self.fits + 1
        return self.savings >= 0

    def close(self) -> None:
        self.asked.append(["closed"])


def editing(editor: Recorder, **spec: Any) -> Editing:
    return Editing(EditorSpec("recorder", "1", Licence("MIT"), lambda settings, flow: editor, **{"max_batch": 4} | spec), editor)


def asks(*instructions: str, size: tuple[int, int] = (8, 6)) -> list[EditRequest]:
    return [EditRequest(Image.new("RGB", size), instruction, number) for number, instruction in enumerate(instructions)]


def test_a_batch_shares_what_it_must() -> None:
    mixed = [*asks("a", "a", "b", "b", "b"), *asks("b", size=(6, 8))]
    for spec, expected in (
        ({}, [["a", "a", "b", "b"], ["b"], ["b"]]),
        ({"one_instruction": True}, [["a", "a"], ["b", "b", "b"], ["b"]]),
        ({"max_batch": 2}, [["a", "a"], ["b", "b"], ["b"], ["b"]]),
        ({"canvas": lambda width, height: (16, 16), "max_batch": 9}, [["a", "a", "b", "b", "b", "b"]]),
    ):
        recorder = Recorder()
        results = list(editing(recorder, **spec).edit_all(mixed))
        assert recorder.asked == expected
        assert [result.image.size for result in results if isinstance(result, Edited)] == [(8, 6)] * 5 + [(6, 8)]


def test_memory_is_halved_then_saved_then_the_edit_fails() -> None:
    recorder = Recorder(fits=1)
    results = list(editing(recorder).edit_all(asks(*"abcdef")))
    assert all(isinstance(result, Edited) for result in results)
    assert [len(batch) for batch in recorder.asked] == [4, 2, 1, 1, 1, 1, 1, 1]  # what does not fit on a canvas is not tried again
    recorder = Recorder(fits=0, savings=1)
    (saved,) = editing(recorder).edit_all(asks("a"))
    assert isinstance(saved, Edited) and dict(saved.record)["memory_savings"] == 1
    (failed,) = editing(Recorder(fits=-1)).edit_all(asks("a"))
    assert failed == Failure("out-of-memory", "one edit of 8x6 pixels does not fit into memory: MemoryError: no room for 3 GB")


def test_one_failure_costs_one_edit() -> None:
    recorder = Recorder()
    results = list(editing(recorder).edit_all(asks("a", "raise", "refuse", "b")))
    kinds = [result.reason if isinstance(result, Failure) else "ok" for result in results]
    assert kinds == ["ok", "error", "refused", "ok"] and results[1] == Failure("error", "TypeError: missing argument")
    (short,) = editing(recorder).edit_all(asks("short"))
    assert short == Failure("error", "ValueError: recorder gave 0 results for 1 requests")


def test_a_lost_accelerator_is_no_failure_of_an_edit() -> None:
    with pytest.raises(AcceleratorLost, match="device-side assert"):
        list(editing(Recorder()).edit_all(asks("assert", "a")))


def test_global_generators_are_seeded_per_edit() -> None:
    """Whatever was drawn before, and whatever the batch would be."""
    first, second = (
        [dict(result.record)["draws"] for result in editing(Recorder(), seeds_globally=True).edit_all(found) if isinstance(result, Edited)]
        for found in (asks("a", "b", "c"), asks("a", "b", "c")[::-1])
    )
    assert first == second[::-1] and len(set(first)) == 3
