"""A vision-language model of the Qwen-VL families (2, 2.5, 3) in this process, decoded greedily, one call at a time.

Tokenizer and image processor are used by themselves: the library's processor for both also wants the parts for videos, which need
torchvision.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Sequence
from typing import Any

import torch
from PIL import Image
from transformers import AutoImageProcessor, AutoModelForImageTextToText, AutoTokenizer

from stages.evaluate_editor.vlm.chat import Answer

IMAGE = "<|image_pad|>"


class LocalModel:
    """Weights, tokenizer and image processor of a directory, or of a Hub id at a revision; bfloat16 on a GPU, float32 elsewhere.

    Raises ``ValueError`` for what cannot be loaded, and for a model of another family.
    """

    def __init__(self, path: str, *, revision: str | None, max_new_tokens: int) -> None:
        self.name = path.rstrip("/").rpartition("/")[2]
        self.max_new_tokens = max_new_tokens
        self.lock = threading.Lock()
        on_gpu = torch.cuda.is_available()
        try:
            self.tokenizer: Any = AutoTokenizer.from_pretrained(path, revision=revision)
            self.pictures: Any = AutoImageProcessor.from_pretrained(path, revision=revision)
            dtype = torch.bfloat16 if on_gpu else torch.float32
            model: Any = AutoModelForImageTextToText.from_pretrained(path, revision=revision, dtype=dtype)
        except (OSError, ValueError, KeyError, ImportError) as error:
            reason = str(error).strip().splitlines()[0]
            raise ValueError(f"evaluate_editor.judge.path: {path} cannot be loaded as a vision-language model ({reason})") from error
        if IMAGE not in self.tokenizer.get_vocab() or not hasattr(self.pictures, "merge_size") or not self.tokenizer.chat_template:
            raise ValueError(f"evaluate_editor.judge.path: {path} is no Qwen-VL model; serve it and use the judge endpoint")
        self.image_id = self.tokenizer.convert_tokens_to_ids(IMAGE)
        self.model = model.to("cuda" if on_gpu else "cpu").eval()

    def ask(self, images: Sequence[bytes], text: str) -> Answer:
        """The reply to pictures, in their order, and a text after them."""
        inputs = self.inputs(images, text)
        length = inputs["input_ids"].shape[1]
        with self.lock, torch.inference_mode():
            produced = self.model.generate(
                **inputs.to(self.model.device),
                max_new_tokens=self.max_new_tokens,
                do_sample=False,
                temperature=None,
                top_p=None,
                top_k=None,
            )
        reply = produced[0, length:]
        return Answer("ok", self.tokenizer.decode(reply, skip_special_tokens=True), self.name, length, len(reply))

    def inputs(self, images: Sequence[bytes], text: str) -> Any:
        """What the model gets: a chat with one message. ``mm_token_type_ids`` says which tokens are pictures; without it transformers gives
        them the positions of plain text, and says nothing."""
        content = [*({"type": "image"} for _ in images), {"type": "text", "text": text}]
        prompt = self.tokenizer.apply_chat_template([{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True)
        seen = self.pictures(images=[Image.open(io.BytesIO(image)).convert("RGB") for image in images], return_tensors="pt")
        before, *after = prompt.split(IMAGE)
        assert len(after) == len(images), "the chat template has one place per picture"
        counts = (seen["image_grid_thw"].prod(1) // self.pictures.merge_size**2).tolist()
        whole = before + "".join(IMAGE * count + rest for count, rest in zip(counts, after, strict=True))
        inputs = self.tokenizer([whole], return_tensors="pt", add_special_tokens=False)
        inputs.update(seen)
        inputs["mm_token_type_ids"] = (inputs["input_ids"] == self.image_id).int()
        return inputs
