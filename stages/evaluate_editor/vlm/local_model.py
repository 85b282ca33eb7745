"""A vision-language model of transformers in this process, decoded greedily, one call at a time."""

from __future__ import annotations

import io
import threading
from collections.abc import Sequence
from typing import Any

import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor

from stages.evaluate_editor.vlm.chat import Answer


class LocalModel:
    """Weights and processor of a directory, or of a Hub id at a revision; bfloat16 on a GPU, float32 elsewhere.

    Raises ``ValueError`` for what cannot be loaded.
    """

    def __init__(self, path: str, *, revision: str | None, max_new_tokens: int) -> None:
        self.name = path
        self.max_new_tokens = max_new_tokens
        self.lock = threading.Lock()
        on_gpu = torch.cuda.is_available()
        try:
            self.processor: Any = AutoProcessor.from_pretrained(path, revision=revision)
            model: Any = AutoModelForImageTextToText.from_pretrained(
                path, revision=revision, dtype=torch.bfloat16 if on_gpu else torch.float32
            )
        except (OSError, ValueError, KeyError, ImportError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(f"evaluate_editor.judge.path: {path} cannot be loaded as a vision-language model ({reason})") from error
        self.model = model.to("cuda" if on_gpu else "cpu").eval()

    @torch.inference_mode()
    def ask(self, images: Sequence[bytes], text: str) -> Answer:
        """The reply to pictures, in their order, and a text after them."""
        pictures = [Image.open(io.BytesIO(image)).convert("RGB") for image in images]
        content = [*({"type": "image"} for _ in pictures), {"type": "text", "text": text}]
        prompt = self.processor.apply_chat_template([{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True)
        with self.lock:
            inputs = self.processor(text=[prompt], images=pictures, return_tensors="pt").to(self.model.device)
            # All inputs go on: without mm_token_type_ids transformers gives pictures the positions of plain text, and says nothing.
            produced = self.model.generate(
                **inputs, max_new_tokens=self.max_new_tokens, do_sample=False, temperature=None, top_p=None, top_k=None
            )
        length = inputs["input_ids"].shape[1]
        reply = produced[0, length:]
        said = self.processor.batch_decode(reply[None], skip_special_tokens=True)[0]
        return Answer("ok", said, self.name, length, len(reply))
