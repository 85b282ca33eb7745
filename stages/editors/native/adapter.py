"""The editor that runs on a pipeline of diffusers. What differs between models is in their description."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image

from stages.editors.editor import Edited, EditRequest, Failure
from stages.editors.native import loading, weights
from stages.editors.native.loading import OFFLOADS
from stages.editors.native.model import NativeModel
from stages.editors.native.settings import NativeSettings
from stages.editors.native.versions import installed

if TYPE_CHECKING:
    from stages.editors.native.model import Condition

CACHED = 16
"""Conditions kept: of the seeds of a source, and of negative prompts. One of Qwen-Image-Edit has about 10 MB."""


class NativeEditor:
    """One model in memory. Noise is drawn on the CPU, by one generator per request, so it is the same on every device."""

    def __init__(self, model: NativeModel, settings: NativeSettings) -> None:
        """Load the weights. Raises ``ValueError`` naming the editor and the setting where they are missing, or others'."""
        self.model = model
        self.settings = settings
        values = settings.model_dump()
        self._guidance: float = values.get("guidance", 1.0)
        self._negative: str | None = values.get("negative_prompt")
        self._packages = installed()
        self._folder, self._revision = weights.locate(model.name, model.hub, settings)
        self._loaded = loading.load(model, self._folder, settings)
        self._conditions: OrderedDict[tuple[str, str], Condition] = OrderedDict()

    def edit(self, batch: Sequence[EditRequest]) -> list[Edited | Failure]:
        """Edits of one canvas, and of one instruction where the model's states are not padded: padding would need a mask, which the fast
        attention backends do not take.

        Raises ``ValueError`` for an image that the model would resize.
        """
        size = batch[0].image.size
        assert all(request.image.size == size for request in batch), "a batch has one canvas"
        if self.model.canvas(*size) != size:
            raise ValueError(f"{self.model.name} would resize an image of {size[0]}x{size[1]} pixels; crop or pad it to its canvas")
        refusals = [self._refusal(request.instruction) for request in batch]
        readable = [request for request, refusal in zip(batch, refusals, strict=True) if refusal is None]
        made = iter(self.sample(readable) if readable else [])
        return [refusal or self._edited(request, next(made), len(readable)) for request, refusal in zip(batch, refusals, strict=True)]

    @torch.no_grad()
    def sample(self, batch: Sequence[EditRequest]) -> np.ndarray:
        """Pixels [batch, height, width, 3] in 0..1 of edits; their texts have equally many tokens in the encoder."""
        positive = _together([self._condition(request, request.instruction) for request in batch])
        negative = _together([self._condition(request, self._negative) for request in batch]) if self._negative is not None else {}
        made = self._loaded.denoiser(
            image=[request.image for request in batch],
            **positive,
            **{f"negative_{name}": states for name, states in negative.items()},
            num_inference_steps=self.settings.steps,
            generator=[torch.Generator("cpu").manual_seed(request.seed) for request in batch],
            output_type="np",
            **self.model.family.arguments(batch[0].image.size, self._guidance),
        ).images
        self._loaded.pipeline.maybe_free_model_hooks()
        width, height = batch[0].image.size
        assert made.shape == (len(batch), height, width, 3), f"{self.model.name} made images of shape {made.shape} from {width}x{height}"
        return made

    def save_memory(self) -> bool:
        """Load the model again with more of it in host memory; False on a CPU, or when all layers are there already."""
        level = OFFLOADS.index(self._loaded.offload) + 1
        if not torch.cuda.is_available() or level == len(OFFLOADS):
            return False
        self.close()
        self._loaded = loading.load(self.model, self._folder, self.settings, OFFLOADS[level])
        return True

    def close(self) -> None:
        """Free the weights and what was encoded with them."""
        self._conditions.clear()
        with suppress(AttributeError):  # closed already
            del self._loaded
        loading.free()

    def _refusal(self, instruction: str) -> Failure | None:
        if not instruction.strip():
            return Failure("empty-instruction", f"{self.model.name}: the instruction is empty")
        why = self.model.family.refusal(self._loaded.pipeline, instruction)
        return Failure("unreadable-instruction", f"{self.model.name}: {why}") if why else None

    def _condition(self, request: EditRequest, text: str) -> Condition:
        """What the encoders make of a text, encoded once for all seeds of a source."""
        reads_image = self.model.family.conditioning == "image and instruction"
        key = (hashlib.sha256(request.image.tobytes()).hexdigest() if reads_image else "", text)
        if key not in self._conditions:
            with torch.no_grad():
                self._conditions[key] = self.model.family.encode(self._loaded.pipeline, request.image, text)
        self._conditions.move_to_end(key)
        while len(self._conditions) > CACHED:
            self._conditions.popitem(last=False)
        return self._conditions[key]

    def _edited(self, request: EditRequest, pixels: np.ndarray, together: int) -> Edited | Failure:
        if not np.isfinite(pixels).all():
            return Failure("not-finite", f"{self.model.name}: the image contains values that are not numbers")
        record: dict[str, Any] = {
            "hub": self.model.hub if self.settings.path is None else "",
            "revision": self._revision,
            "packages": self._packages,
            "size": [pixels.shape[1], pixels.shape[0]],
            "condition_tokens": self._condition(request, request.instruction)["prompt_embeds"].shape[1],
            "denoised_together": together,
            "dtype": self.settings.dtype,
            "device": "cuda" if torch.cuda.is_available() else "cpu",
            "attention": self._loaded.attention,
            "compiled": self._loaded.compiled,
            "offload": self._loaded.offload,
        }
        return Edited(Image.fromarray((pixels * 255).round().astype(np.uint8)), record=tuple(record.items()))


def _together(conditions: list[Condition]) -> Condition:
    return {name: torch.cat([condition[name] for condition in conditions]) for name in conditions[0]}
