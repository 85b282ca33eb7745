"""From image files and an instruction to what a model reads: decoded once, resized, with the tree of their prompts.

A processor is the part of a reward model that needs no weights, so other processes than the model's can decode. In: a source, its
candidates and the instruction. Out: `PreparedSample`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from reward.config import PresentationConfig, RewardModelConfig
from reward.inputs.batch import PreparedSample
from reward.inputs.decoding import decode
from reward.inputs.images import fitted_size, resize
from reward.inputs.prompt import Prompt, build_prompt
from reward.inputs.sample import EditSample, ImageInput, SampleError
from reward.inputs.tokenizer import load_tokenizer
from reward.inputs.tree import Grid

FORMAT = 2
"""Version of the saved layout of a reward model."""


@dataclass(frozen=True)
class Processor:
    """How a model is shown an edit."""

    presentation: PresentationConfig
    prompt: Prompt
    patch_size: int

    @classmethod
    def load(cls, path: Path) -> Processor:
        """The processor of a saved model. Raises ValueError when there is none."""
        config, backbone = read_config(path)
        vision = backbone["vision_config"]
        prompt = build_prompt(config=config, tokenizer=load_tokenizer(str(path)), merge_size=vision["spatial_merge_size"])
        return cls(config.presentation, prompt, vision["patch_size"])

    def prepare(self, *, source: ImageInput, candidates: Sequence[ImageInput], instruction: str) -> PreparedSample:
        """Decode and resize a source and its candidates. Raises SampleError for what cannot be shown."""
        self.prompt.check(instruction)
        factor = self.patch_size * self.prompt.merge_size
        area = self.presentation.min_image_area or self.presentation.image_area, self.presentation.image_area
        original = decode(source, what="source image")
        size = fitted_size(*original.size, factor=factor, area=area, what="source image")
        first = resize(original, size)
        edits = []
        for data in candidates:
            edited = decode(data, what="edited image")
            if self.presentation.layout == "images":
                size = fitted_size(*edited.size, factor=factor, area=area, what="edited image")
            edits.append(resize(edited, size))
        if self.presentation.layout == "clip":
            return self._built([torch.stack([first, edit]) for edit in edits], instruction)
        return self._built([image[None] for image in (first, *edits)], instruction)

    def prepare_each(self, samples: Iterable[EditSample]) -> Iterator[PreparedSample | SampleError]:
        """Prepare samples in their order. Those that follow each other with one source and instruction become one tree. If one of them
        cannot be shown, each is prepared separately, and only that one becomes an error.
        """
        for (source, instruction), run in groupby(samples, key=lambda sample: (sample.source, sample.instruction)):
            same = list(run)
            try:
                yield self.prepare(source=source, candidates=[sample.edited for sample in same], instruction=instruction)
            except SampleError as error:
                if len(same) == 1:
                    yield error
                else:
                    for sample in same:
                        yield from self.prepare_each([sample])

    def separated(self, prepared: PreparedSample) -> list[PreparedSample]:
        """Each edit with its own copy of the source: smaller trees of the same scores."""
        items = [item for stack in prepared.stacks for item in stack]
        if self.presentation.layout == "clip":
            return [self._built([item], prepared.instruction) for item in items]
        return [self._built([items[0], item], prepared.instruction) for item in items[1:]]

    def _built(self, items: list[Tensor], instruction: str) -> PreparedSample:
        """items: uint8 [frame, height, width, 3] each, clips or the source and the edits."""
        stacks = tuple(torch.stack(list(run)) for _, run in groupby(items, key=lambda item: item.shape))
        grids: list[Grid] = [(item.shape[1] // self.patch_size, item.shape[2] // self.patch_size) for item in items]
        shared = None if self.presentation.layout == "clip" else grids.pop(0)
        return PreparedSample(stacks, self.prompt.tree(source=shared, edits=grids, instruction=instruction), instruction)


def read_config(path: Path) -> tuple[RewardModelConfig, dict[str, Any]]:
    """Configuration of a saved model, and its backbone's in transformers' form. Raises ValueError when there is no model of this layout."""
    try:
        saved = json.loads((path / "config.json").read_text())
    except (OSError, ValueError) as error:
        reason = "it has no config.json" if isinstance(error, FileNotFoundError) else error
        raise ValueError(
            f"no reward model at {path} ({reason}); name the folder that the training or `pipeline reward import` wrote, such as "
            "runs/demo/train-reward/model"
        ) from error
    if not isinstance(saved, dict) or saved.get("format") != FORMAT or "reward_model" not in saved:
        raise ValueError(
            f"{path}/config.json is not of reward model format {FORMAT}; save the model again, or import a released EditReward "
            "checkpoint with `pipeline reward import`"
        )
    return RewardModelConfig.model_validate(saved["reward_model"]), saved["backbone"]
