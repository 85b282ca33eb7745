"""The states that reach the denoiser are those of a direct call of the encoder: pixels of random weights would not show a difference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_canvases
import tiny_editors
import torch
from PIL import Image
from transformers import CLIPTextModel, Qwen2_5_VLForConditionalGeneration, Qwen3ForCausalLM, T5EncoderModel
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLModel

from stages.editors.editor import EditRequest
from stages.editors.native import models
from stages.editors.native.adapter import NativeEditor
from stages.editors.native.editor_of import editor_of

TEXT = "make it blue"


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        small_canvases.shrink(patch)
        yield


def open_editor(name: str, folder: Path) -> NativeEditor:
    model = replace(next(model for model in models.MODELS if model.name == name), steps=1)
    return NativeEditor(model, editor_of(model).settings(path=str(tiny_editors.save(name, folder)), dtype="fp32"))


def denoiser_call(editor: NativeEditor) -> tuple[Image.Image, dict[str, Any]]:
    """The image, and what the denoiser is first called with in its edit."""
    seen: list[dict[str, Any]] = []
    spy = editor._loaded.pipeline.transformer.register_forward_pre_hook(lambda module, args, kwargs: seen.append(kwargs), with_kwargs=True)
    width, height = editor.model.canvas(160, 100)
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))
    editor.edit([EditRequest(image, TEXT, 1)])
    spy.remove()
    return image, seen[0]


@torch.no_grad()
def last_states(encoder: Qwen2_5_VLForConditionalGeneration, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """Behind the norm, which is applied here: of the last layer's output, with the positions that the encoder's own function gives."""
    parts: list[torch.Tensor] = []
    model = encoder.model
    hook = model.language_model.layers[-1].register_forward_hook(lambda module, args, output: parts.append(output))
    positions, _ = model.get_rope_index(
        inputs["input_ids"],
        image_grid_thw=inputs["image_grid_thw"],
        attention_mask=inputs["attention_mask"],
        mm_token_type_ids=(inputs["input_ids"] == encoder.config.image_token_id).int(),
    )
    encoder(**inputs, position_ids=positions)
    hook.remove()
    layer = parts[0][0] if isinstance(parts[0], tuple) else parts[0]
    return model.language_model.norm(layer)


@pytest.mark.parametrize(("name", "picture"), [("qwen-image-edit", ""), ("qwen-image-edit-2509", "Picture 1: ")])
def test_qwen_image_edit_reads_the_encoder_with_rows_and_columns_behind_the_norm(name: str, picture: str, tmp_path: Path) -> None:
    editor = open_editor(name, tmp_path)
    image, call = denoiser_call(editor)
    pipeline = editor._loaded.pipeline
    seen_image = image if not picture else image.resize((64, 32), Image.Resampling.LANCZOS)  # 384² pixels as shrunk here
    text = pipeline.prompt_template_encode.format(f"{picture}<|vision_start|><|image_pad|><|vision_end|>{TEXT}" if picture else TEXT)
    inputs = dict(pipeline.processor(text=[text], images=[seen_image], return_tensors="pt"))
    assert inputs.pop("mm_token_type_ids").sum() > 1
    encoder = Qwen2_5_VLForConditionalGeneration.from_pretrained(tmp_path / "text_encoder")
    expected = last_states(encoder, inputs)[:, 64:]  # the template's system message is dropped
    torch.testing.assert_close(call["encoder_hidden_states"], expected, atol=1e-5, rtol=0)
    assert call["encoder_hidden_states_mask"] is None
    with torch.no_grad():
        in_text = encoder(**inputs, output_hidden_states=True).hidden_states[-1][:, 64:]  # what diffusers 0.42.1 reads by itself
    assert (in_text - expected).abs().max() > 1e-4


def test_longcat_reads_the_encoder_with_rows_and_columns_behind_the_norm(tmp_path: Path) -> None:
    editor = open_editor("longcat-image-edit", tmp_path)
    calls: list[dict[str, Any]] = []
    spy = editor._loaded.pipeline.text_encoder.model.register_forward_pre_hook(lambda m, a, kwargs: calls.append(kwargs), with_kwargs=True)
    _, call = denoiser_call(editor)
    spy.remove()
    inputs = {name: calls[0][name] for name in ("input_ids", "attention_mask", "pixel_values", "image_grid_thw")}
    encoder = Qwen2_5_VLForConditionalGeneration.from_pretrained(tmp_path / "text_encoder")
    expected = last_states(encoder, inputs)
    start = inputs["input_ids"][0].tolist().index(encoder.config.vision_start_token_id)
    end = len(editor._loaded.pipeline.tokenizer(editor._loaded.pipeline.prompt_template_encode_suffix).input_ids)
    torch.testing.assert_close(call["encoder_hidden_states"], expected[:, start:-end], atol=1e-5, rtol=0)
    with torch.no_grad():
        in_text = encoder(**inputs, output_hidden_states=True).hidden_states[-1]
    assert (in_text - expected).abs().max() > 1e-4


def test_klein_reads_the_outputs_of_layers_9_18_and_27(tmp_path: Path) -> None:
    editor = open_editor("flux2-klein-4b", tmp_path)
    _, call = denoiser_call(editor)
    tokenizer = editor._loaded.pipeline.tokenizer
    text = f"<|im_start|>user\n{TEXT}<|im_end|>\n<|im_start|>assistant\n"
    inputs = tokenizer(text, padding="max_length", max_length=512, return_tensors="pt")
    encoder = Qwen3ForCausalLM.from_pretrained(tmp_path / "text_encoder")
    states: list[torch.Tensor] = []
    for index in (9, 18, 27):
        encoder.model.layers[index - 1].register_forward_hook(
            lambda module, args, output: states.append(output[0] if isinstance(output, tuple) else output)
        )
    with torch.no_grad():
        encoder(**inputs)
    torch.testing.assert_close(call["encoder_hidden_states"], torch.cat(states, dim=-1), atol=1e-5, rtol=0)


def test_kontext_reads_all_states_of_t5_and_the_pooled_state_of_clip(tmp_path: Path) -> None:
    editor = open_editor("flux-kontext", tmp_path)
    _, call = denoiser_call(editor)
    pipeline = editor._loaded.pipeline
    t5 = T5EncoderModel.from_pretrained(tmp_path / "text_encoder_2")
    clip = CLIPTextModel.from_pretrained(tmp_path / "text_encoder")
    with torch.no_grad():
        states = t5(pipeline.tokenizer_2(TEXT, padding="max_length", max_length=512, return_tensors="pt").input_ids).last_hidden_state
        pooled = clip(pipeline.tokenizer(TEXT, padding="max_length", max_length=77, return_tensors="pt").input_ids).pooler_output
    torch.testing.assert_close(call["encoder_hidden_states"], states, atol=1e-5, rtol=0)
    torch.testing.assert_close(call["pooled_projections"], pooled, atol=1e-5, rtol=0)
    assert call["guidance"].tolist() == [2.5]


def test_an_encoder_without_rows_and_columns_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Qwen2_5_VLModel, "compute_3d_position_ids", lambda self, **_: None)
    with pytest.raises(ValueError, match="no rows and columns, which the editor's weights were not trained with; install transformers"):
        denoiser_call(open_editor("qwen-image-edit", tmp_path))


def test_an_encoder_that_gives_states_from_before_its_norm_is_refused(tmp_path: Path) -> None:
    editor = open_editor("longcat-image-edit", tmp_path)
    encoder = editor._loaded.pipeline.text_encoder

    def unnormed(module: Any, args: Any, output: Any) -> Any:
        output.hidden_states = (*output.hidden_states[:-1], output.hidden_states[-1] * 2)
        return output

    encoder.register_forward_hook(unnormed, prepend=True)
    with pytest.raises(ValueError, match="from before its final norm"):
        denoiser_call(editor)
