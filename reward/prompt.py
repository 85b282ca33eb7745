"""The text around the images: from an instruction to token ids with one placeholder run per vision input.

A prompt is head + instruction + tail. The head holds one placeholder token per vision input, which is repeated once per vision
token; the tail ends with the reward token, where the heads read. One prompt asks for all dimensions, in one pass. A user's
instruction is tokenised on its own and can never produce a special token.

Models built from a configuration see vision tokens, words, reward token and nothing else; two images stand between the family's
vision marks, since adjacent ones would be numbered as one. Pretrained backbones get their own chat template and a rubric, written
from the criteria that the annotators were given (EditReward, appendix A.2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from reward.config import RewardModelConfig
from reward.sample import InstructionError
from reward.tokenizer import IMAGE_TOKEN, REWARD_TOKEN, VIDEO_TOKEN, VISION_END_TOKEN, VISION_START_TOKEN, token_id

RUBRIC = """Judge an edited picture against the original it was made from and the instruction that was given.
Instruction following: does the edit mean what was asked, is every part of it done, and is everything else left as it was? \
An unchanged or unrelated picture fails.
Visual quality: could the result be a real picture, with sound light, shadow and proportion, without blur, seams, halos or \
distortion, and pleasant as a whole?
{pictures}
Instruction: {instruction}
Rating: """
PICTURES = {
    "images": "The first picture is the original, the second is the edit.",
    "clip": "The first frame is the original, the second is the edit.",
}
_MARK = "[[instruction]]"

Grid = tuple[int, int]
"""Rows and columns of patches of one vision input."""


@dataclass(frozen=True)
class Prompt:
    """Token ids around an instruction, for one model.

    `rope_index` is the backbone's get_rope_index; its results are kept, since they depend only on grids and length.
    """

    tokenizer: PreTrainedTokenizerBase
    head: tuple[int, ...]
    tail: tuple[int, ...]
    vision_token: int
    is_video: bool
    merge_size: int
    max_instruction_tokens: int
    rope_index: Callable[..., tuple[Tensor, Tensor]]
    _positions: dict[tuple[tuple[Grid, ...], int], Tensor] = field(default_factory=dict)

    def instruction_ids(self, instruction: str) -> tuple[int, ...]:
        """Token ids of a user's instruction. Raises InstructionError when it is empty or too long."""
        if not instruction.strip():
            raise InstructionError("the instruction is empty; expected what was asked of the editor")
        ids = self.tokenizer(instruction, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        if len(ids) > self.max_instruction_tokens:
            raise InstructionError(
                f"the instruction has {len(ids)} tokens, more than presentation.max_instruction_tokens "
                f"{self.max_instruction_tokens}; shorten it or raise the limit"
            )
        return tuple(ids)

    def ids(self, grids: tuple[Grid, ...], instruction: tuple[int, ...]) -> Tensor:
        """[token] ids of one edit, whose vision inputs have these grids."""
        runs = iter(grids)
        row: list[int] = []
        for token in self.head:
            row.extend([token] * (vision_tokens(next(runs), self.merge_size) if token == self.vision_token else 1))
        return torch.tensor([*row, *instruction, *self.tail])

    def positions(self, grids: tuple[Grid, ...], ids: Tensor) -> Tensor:
        """[3, token] temporal, height and width positions of `ids` as Qwen2.5-VL numbers them."""
        key = (grids, len(ids))
        if key not in self._positions:
            is_vision = (ids == self.vision_token).int()[None]
            grid_thw = torch.tensor([[1, *grid] for grid in grids])
            if self.is_video:
                found, _ = self.rope_index(ids[None], is_vision * 2, video_grid_thw=grid_thw)
            else:
                found, _ = self.rope_index(ids[None], is_vision, image_grid_thw=grid_thw)
            if len(self._positions) >= 4096:  # sizes and lengths seldom recur this variously: start anew
                self._positions.clear()
            self._positions[key] = found[:, 0]
        return self._positions[key]


def vision_tokens(grid: Grid, merge_size: int) -> int:
    """Number of language tokens of one vision input."""
    return grid[0] * grid[1] // merge_size**2


def build_prompt(*, config: RewardModelConfig, tokenizer: PreTrainedTokenizerBase, merge_size: int, rope_index: Callable) -> Prompt:
    """The prompt of a model, from its configuration and tokenizer."""
    layout = config.presentation.layout
    vision_name, inputs = (IMAGE_TOKEN, 2) if layout == "images" else (VIDEO_TOKEN, 1)
    vision_token, reward_token = token_id(tokenizer, vision_name), token_id(tokenizer, REWARD_TOKEN)
    head: tuple[int, ...] = (vision_token,)
    if inputs == 2:
        head = (token_id(tokenizer, VISION_START_TOKEN), vision_token, token_id(tokenizer, VISION_END_TOKEN)) * 2
    tail: tuple[int, ...] = (reward_token,)
    if config.backbone.pretrained is not None:
        kind = "image" if layout == "images" else "video"
        text = RUBRIC.format(pictures=PICTURES[layout], instruction=_MARK) + REWARD_TOKEN
        content: Any = [{"type": kind}] * inputs + [{"type": "text", "text": text}]
        rendered = str(tokenizer.apply_chat_template([{"role": "user", "content": content}], tokenize=False))
        before, _, after = rendered.partition(_MARK)
        after = after[: after.index(REWARD_TOKEN) + len(REWARD_TOKEN)]  # causal: what follows cannot be read
        head, tail = (tuple(tokenizer(part, add_special_tokens=False)["input_ids"]) for part in (before, after))
    assert head.count(vision_token) == inputs and tail[-1] == reward_token
    return Prompt(
        tokenizer=tokenizer,
        head=head,
        tail=tail,
        vision_token=vision_token,
        is_video=layout == "clip",
        merge_size=merge_size,
        max_instruction_tokens=config.presentation.max_instruction_tokens,
        rope_index=rope_index,
    )
