"""Every editor that runs in process, from tiny random weights in a directory laid out as on the Hub, by the adapter of real weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import small_canvases
import tiny_editors
import torch
from diffusers import DiffusionPipeline
from PIL import Image

from finetune.image_positions import supply
from stages.editors.editor import Edited, EditRequest
from stages.editors.native import models
from stages.editors.native.adapter import NativeEditor
from stages.editors.native.editor_of import editor_of

CLOSE = 1e-5


@dataclass
class Case:
    name: str
    folder: Path
    editor: NativeEditor

    def open(self) -> NativeEditor:
        model = replace(next(model for model in models.MODELS if model.name == self.name), steps=2)
        return NativeEditor(model, editor_of(model).settings(path=str(self.folder), dtype="fp32"))

    def request(self, instruction: str, seed: int, size: tuple[int, int] = (160, 100)) -> EditRequest:
        width, height = self.editor.model.canvas(*size)
        pixels = np.random.default_rng(len(instruction) + seed).integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8)
        return EditRequest(Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC), instruction, seed)


@pytest.fixture(scope="module", params=tiny_editors.BUILDERS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    name = request.param
    with pytest.MonkeyPatch.context() as patch:
        small_canvases.shrink(patch)
        made = Case(name, tiny_editors.save(name, tmp_path_factory.mktemp("weights") / name), None)  # ty: ignore
        made.editor = made.open()
        yield made


def test_edits_as_the_pipeline_itself_at_two_aspect_ratios(case: Case) -> None:
    """The pipeline encodes and denoises one request at a time, with its encoders loaded."""
    pipeline = DiffusionPipeline.from_pretrained(case.folder)
    pipeline.set_progress_bar_config(disable=True)
    if "qwen" in case.name or "firered" in case.name or "longcat" in case.name:
        supply(pipeline.text_encoder)
    for request in (case.request("make it blue", 1), case.request("add a hat", 2, (100, 130))):
        width, height = request.image.size
        size = {} if "longcat" in case.name else {"width": width, "height": height}
        if case.name == "flux-kontext":
            size["max_area"] = width * height
        settings = case.editor.settings.model_dump()
        scale = {} if settings.get("guidance") is None else {_scale(case.name): settings["guidance"]}
        negative = {} if settings.get("negative_prompt") in (None, "") else {"negative_prompt": settings["negative_prompt"]}
        expected = pipeline(
            image=request.image,
            prompt=request.instruction,
            num_inference_steps=2,
            generator=torch.Generator().manual_seed(request.seed),
            output_type="np",
            **size,
            **scale,
            **negative,
            **({"_auto_resize": False} if case.name == "flux-kontext" else {}),
        ).images
        assert expected.shape == (1, height, width, 3)
        assert np.abs(case.editor.sample([request]) - expected).max() < CLOSE


def test_a_batch_gives_what_single_requests_give(case: Case) -> None:
    alike = [case.request("make it blue", 1), case.request("make it teal", 2)]
    together = case.editor.sample(alike)
    apart = np.concatenate([case.editor.sample([request]) for request in alike])
    assert np.abs(together - apart).max() < CLOSE
    assert np.abs(apart[0] - apart[1]).max() > 0.01

    if not editor_of(case.editor.model).one_instruction:
        mixed = [alike[0], case.request("add a large hat", 3)]
        for request, edited in zip(mixed, case.editor.edit(mixed), strict=True):
            (alone,) = case.editor.edit([request])
            assert isinstance(edited, Edited) and isinstance(alone, Edited)
            assert edited.image.size == request.image.size
            assert np.abs(np.asarray(edited.image, dtype=int) - np.asarray(alone.image)).max() <= 1


def test_the_seed_alone_decides_the_image_and_the_encoders_are_not_needed_again(case: Case) -> None:
    first, second = case.request("make it blue", 1), case.request("make it blue", 1)
    second = replace(second, seed=7)
    kept = case.editor.edit([first, second])
    dropped = case.open()
    dropped.edit([first])
    for name in [name for name in dropped._loaded.pipeline.components if name.startswith("text_encoder")]:
        setattr(dropped._loaded.pipeline, name, None)
        setattr(dropped._loaded.denoiser, name, None)
    again = dropped.edit([first, second])
    for one, other in zip(kept, again, strict=True):
        assert isinstance(one, Edited) and isinstance(other, Edited) and one.image.tobytes() == other.image.tobytes()
    assert kept[0].image.tobytes() != kept[1].image.tobytes()  # ty: ignore


def _scale(name: str) -> str:
    return "true_cfg_scale" if "qwen" in name or "firered" in name else "guidance_scale"
