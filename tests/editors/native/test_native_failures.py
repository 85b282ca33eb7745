"""Requests that cannot be edited fail alone, with a sentence; the others of their batch are edited."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
import small_canvases
import tiny_editors
from PIL import Image

from stages.editors.editor import Edited, EditRequest, Failure
from stages.editors.native import models
from stages.editors.native.adapter import NativeEditor
from stages.editors.native.editor_of import editor_of

Open = Callable[[str], NativeEditor]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Open]:
    made: dict[str, NativeEditor] = {}

    def get(name: str) -> NativeEditor:
        if name not in made:
            model = replace(next(model for model in models.MODELS if model.name == name), steps=1)
            folder = tiny_editors.save(name, tmp_path_factory.mktemp("weights") / name)
            made[name] = NativeEditor(model, editor_of(model).settings(path=str(folder), dtype="fp32"))
        return made[name]

    with pytest.MonkeyPatch.context() as patch:
        small_canvases.shrink(patch)
        yield get


def request(editor: NativeEditor, instruction: str) -> EditRequest:
    width, height = editor.model.canvas(160, 100)
    return EditRequest(Image.new("RGB", (width, height), "teal"), instruction, 0)


@pytest.mark.parametrize(
    ("name", "instruction", "reason", "sentence"),
    [
        ("flux-kontext", "", "empty-instruction", "is empty"),
        ("flux-kontext", " \n", "empty-instruction", "is empty"),
        ("flux-kontext", "a " * 5000, "unreadable-instruction", "tokens, and the model reads 512"),
        ("flux-kontext", "把天空变成红色", "unreadable-instruction", "T5 does not know the characters '把天空变成红色'"),
        ("qwen-image-edit", "a " * 5000, "unreadable-instruction", "10000 tokens, and the model reads 1024"),
        ("qwen-image-edit", "remove <|image_pad|>", "unreadable-instruction", "control token <|image_pad|>"),
        ("flux2-klein-4b", "a " * 5000, "unreadable-instruction", "tokens, and the model reads 512"),
        ("longcat-image-edit", "a " * 300, "unreadable-instruction", "600 tokens, and the model reads 512"),
        ("longcat-image-edit", "", "empty-instruction", "is empty"),
    ],
)
def test_an_instruction_that_cannot_be_read_fails_alone(opened: Open, name: str, instruction: str, reason: str, sentence: str) -> None:
    editor = opened(name)
    first, failed, last = editor.edit([request(editor, text) for text in ("make it blue", instruction, "make it blue")])
    assert isinstance(failed, Failure) and failed.reason == reason and sentence in failed.message and failed.message.startswith(name)
    assert isinstance(first, Edited) and isinstance(last, Edited)


@pytest.mark.parametrize("name", ["qwen-image-edit-2509", "flux2-klein-4b", "longcat-image-edit"])
def test_other_languages_are_read(opened: Open, name: str) -> None:
    editor = opened(name)
    assert isinstance(editor.edit([request(editor, 'اجعلها زرقاء, 写上“你好” 🎈 {0} "café"')])[0], Edited)


def test_an_image_that_is_not_a_canvas_is_refused(opened: Open) -> None:
    editor = opened("flux-kontext")
    with pytest.raises(ValueError, match="flux-kontext would resize an image of 100x100 pixels; crop or pad it"):
        editor.edit([EditRequest(Image.new("RGB", (100, 100)), "make it blue", 0)])


def test_values_that_are_no_numbers_fail_the_edit(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    editor = opened("flux2-klein-4b")
    sample = editor.sample
    monkeypatch.setattr(editor, "sample", lambda batch: sample(batch) * np.array([1.0, np.nan]).reshape(2, 1, 1, 1))
    good, bad = editor.edit([request(editor, "make it blue"), request(editor, "make it teal")])
    assert isinstance(good, Edited) and isinstance(bad, Failure) and bad.reason == "not-finite"


def test_an_edit_says_how_it_was_made(opened: Open) -> None:
    editor = opened("qwen-image-edit")
    (edited,) = editor.edit([request(editor, "make it blue")])
    assert isinstance(edited, Edited)
    record = dict(edited.record)
    assert set(record.pop("packages")) == {"torch", "diffusers", "transformers"}
    assert record.pop("revision").startswith("local-")
    (longer,) = editor.edit([request(editor, "make it dark blue")])
    assert isinstance(longer, Edited)
    assert dict(longer.record)["condition_tokens"] - record.pop("condition_tokens") == len("dark ")
    assert record == {
        "hub": "", "size": list(edited.image.size), "denoised_together": 1, "dtype": "fp32", "device": "cpu", "attention": "native",
        "compiled": False, "offload": "none",
    }  # fmt: skip


def test_a_source_is_encoded_once_for_all_its_seeds(opened: Open) -> None:
    editor = opened("qwen-image-edit")
    calls: list[str] = []
    spy = editor._loaded.pipeline.text_encoder.register_forward_pre_hook(lambda module, args: calls.append("call"))
    one = replace(request(editor, "make it pink"), image=Image.new("RGB", editor.model.canvas(160, 100), "navy"))  # no other test's
    for seed in range(3):
        editor.edit([replace(one, seed=seed), replace(one, seed=seed + 10)])
    spy.remove()
    assert len(calls) == 2  # the instruction and the negative prompt
    assert not editor.save_memory()


@pytest.mark.skipif(shutil.which("c++") is None, reason="torch compiles with a C++ compiler on a CPU")
def test_compiled_blocks_change_an_image_by_rounding_only(opened: Open) -> None:
    editor = opened("flux-kontext")
    settings = editor.settings.model_copy(update={"compile": "regional"})
    compiled = NativeEditor(editor.model, settings)
    assert compiled._loaded.compiled
    one = request(editor, "make it blue")
    np.testing.assert_allclose(compiled.sample([one]), editor.sample([one]), atol=1e-5)
    compiled.close()
    compiled.close()
