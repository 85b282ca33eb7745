"""The judge that runs in this process, with tiny random weights of Qwen2.5-VL."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen2Tokenizer
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from stages.evaluate_editor.items.item import Item
from stages.evaluate_editor.judges.local import LocalJudge
from stages.evaluate_editor.vlm import local_model
from stages.evaluate_editor.vlm.local_model import IMAGE, LocalModel
from stages.evaluate_editor.vlm.pictures import encoded

CHAT = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{% for part in message.content %}{% if part.type == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part.text }}{% endif %}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", IMAGE, "<|video_pad|>"]


def characters() -> list[str]:
    """The 256 characters that stand for bytes in byte-level tokenizers."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return [chr(code) for code in kept] + [chr(256 + number) for number in range(256 - len(kept))]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vlm")
    tokenizer = Qwen2Tokenizer(vocab={token: number for number, token in enumerate([*characters(), "<|endoftext|>"])}, merges=[])
    tokenizer.add_special_tokens({"additional_special_tokens": SPECIAL})
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(folder)
    Qwen2VLImageProcessorPil(min_pixels=28 * 28, max_pixels=56 * 56).save_pretrained(folder)
    ids = {name: tokenizer.convert_tokens_to_ids(f"<|{name}|>") for name in ("image_pad", "video_pad", "vision_start", "vision_end")}
    config = Qwen2_5_VLConfig(
        text_config={
            "vocab_size": len(tokenizer), "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
            "num_key_value_heads": 1, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]},
        },
        vision_config={
            "depth": 2, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 16, "fullatt_block_indexes": [1],
        },
        image_token_id=ids["image_pad"],
        video_token_id=ids["video_pad"],
        vision_start_token_id=ids["vision_start"],
        vision_end_token_id=ids["vision_end"],
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        Qwen2_5_VLForConditionalGeneration(config).save_pretrained(folder)
    return folder


def item() -> tuple[Item, np.ndarray]:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 56, 3)).astype(np.uint8)
    return Item("a", pixels, "add a hat", "add", "en"), 255 - pixels


def test_pictures_and_text_go_to_the_model_with_their_positions(weights: Path) -> None:
    model = LocalModel(str(weights), revision=None, max_new_tokens=4)
    source, edit = item()
    pictures = [encoded(source.image, "png"), encoded(edit, "png")]
    inputs = model.inputs(pictures, "how well?")
    ids = inputs["input_ids"][0]
    assert inputs["image_grid_thw"].shape == (2, 3)
    assert int((ids == model.image_id).sum()) == int(inputs["image_grid_thw"].prod(1).sum()) // 4 == int(inputs["mm_token_type_ids"].sum())
    said = model.tokenizer.decode(ids)
    assert said.startswith("<|im_start|>user\n<|vision_start|>") and "<|vision_end|>how well?<|im_end|>\n<|im_start|>assistant" in said
    first, again = model.ask(pictures, "how well?"), model.ask(pictures, "how well?")
    assert first == again and first.prompt_tokens == len(ids) and 1 <= first.completion_tokens <= 4
    with torch.no_grad():
        flat = {name: value for name, value in inputs.items() if name != "mm_token_type_ids"}
        logits, plain = (model.model(**given).logits[0, -1] for given in (inputs, flat))
        swapped = model.model(**model.inputs(pictures[::-1], "how well?")).logits[0, -1]
    assert not torch.equal(logits, plain) and not torch.equal(logits, swapped)


def test_random_weights_give_no_scores_and_are_asked_once(weights: Path, tmp_path: Path) -> None:
    judge = LocalJudge(name="local", path=str(weights), max_new_tokens=6)
    judge.check()
    (found,) = judge.open(tmp_path)([item()[0]], [item()[1]])
    assert found.status == "unparsable" and found.scores == {} and found.attempts == 2 and found.snapshot == weights.name
    assert set(json.loads(found.raw)) == {"semantic_consistency", "perceptual_quality"}


def test_a_model_that_answers_gives_scores_and_is_not_asked_again(weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoding is replaced by the tokens of an answer; everything around it is real."""
    judge = LocalJudge(name="local", path=str(weights))
    judging = judge.open(tmp_path)

    def generate(self: object, input_ids: torch.Tensor, **given: object) -> torch.Tensor:
        assert {"pixel_values", "image_grid_thw", "mm_token_type_ids"} <= given.keys() and given["do_sample"] is False
        reply = judging.chat.tokenizer('{"score": [8, 5]}', return_tensors="pt")["input_ids"]  # ty: ignore[unresolved-attribute]
        return torch.cat([input_ids, reply], 1)

    monkeypatch.setattr(Qwen2_5_VLForConditionalGeneration, "generate", generate)
    (found,) = judging([item()[0]], [item()[1]])
    assert found.status == "ok" and found.overall == 5.0 and found.scores["success"] == 8.0
    monkeypatch.setattr(local_model.LocalModel, "ask", lambda *_: pytest.fail("asked again"))
    assert judge.open(tmp_path)([item()[0]], [item()[1]]) == [found]


def test_what_is_no_such_model_is_refused(weights: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has no config\.json"):
        LocalJudge(name="local", path=str(tmp_path)).check()
    with pytest.raises(ValueError, match="there is no directory a/b/c, and it is no Hub id"):
        LocalJudge(name="local", path="a/b/c").check()
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="cannot be loaded as a vision-language model"):
        LocalJudge(name="local", path=str(tmp_path)).open(tmp_path)
    assert LocalJudge(name="local", path=str(weights)).revision != LocalJudge(name="local", path=str(weights), max_new_tokens=9).revision
