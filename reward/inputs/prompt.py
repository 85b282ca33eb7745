"""The text around the images: from an instruction and the sizes of images to the tree of tokens that a model reads.

Three prompts. `words`: images, instruction, one reward token that all heads read; for models built from a configuration, whose tokenizer
knows little else. `reference`: the published order: images, then per dimension a rubric with the instruction and a reward token.
`rubric_first`: all rubrics, source, instruction, edit, one reward token per dimension; the part before the source is the same for every
edit, so inference computes it once. Pretrained backbones get their own chat template around it; what follows the last reward token is
left out, since attention is causal.

The special tokens of a prompt come from its template only: text between them is tokenised with special tokens turned off, so that no
instruction can produce one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedTokenizerBase

from reward.config import RewardModelConfig
from reward.inputs.rubrics import INTRODUCTION, rubrics_of
from reward.inputs.sample import InstructionError
from reward.inputs.tokenizer import IMAGE_TOKEN, REWARD_TOKEN, VIDEO_TOKEN, VISION_END_TOKEN, VISION_START_TOKEN, token_id
from reward.inputs.tree import Grid, Tree, TreeBuilder

INSTRUCTION = "\ue000"
"""Marks the instruction in a template: a private-use character, which no template contains otherwise."""
_IMAGE = VISION_START_TOKEN + IMAGE_TOKEN + VISION_END_TOKEN


@dataclass(frozen=True)
class Prompt:
    """Templates of the nodes of a tree, for one model.

    root: ids before the first vision input; source: template from the source image on (empty for clips); edit: from the edited image, or
    the clip, on; branches: one per dimension, or none when the reward tokens are in `edit`; reward_vectors: number of different embeddings
    that the reward tokens of an edit have, in turn.
    """

    tokenizer: PreTrainedTokenizerBase
    root: tuple[int, ...]
    source: str
    edit: str
    branches: tuple[str, ...]
    dimensions: int
    vision_token: int
    reward_token: int
    reward_vectors: int
    merge_size: int
    flat: bool
    max_instruction_tokens: int

    def check(self, instruction: str) -> None:
        """Raise InstructionError for an instruction that is empty, too long, or no text (half of a surrogate pair)."""
        if not instruction.strip():
            raise InstructionError("the instruction is empty; expected what was asked of the editor")
        try:
            instruction.encode()
        except UnicodeEncodeError:
            raise InstructionError("the instruction is not valid Unicode; repair its encoding") from None
        count = len(self.tokenizer(instruction, add_special_tokens=False, split_special_tokens=True)["input_ids"])
        if count > self.max_instruction_tokens:
            raise InstructionError(
                f"the instruction has {count} tokens, more than presentation.max_instruction_tokens "
                f"{self.max_instruction_tokens}; shorten it or raise the limit"
            )

    def tree(self, *, source: Grid | None, edits: Sequence[Grid], instruction: str) -> Tree:
        """The tree of a source and its edits. source: None when the edits are clips. Raises InstructionError.

        Vision inputs are numbered source, edit 0, edit 1, ...; clips from 0.
        """
        self.check(instruction)
        source_ids, edit_ids, *branch_ids = (
            tokenise(self.tokenizer, template, instruction) for template in (self.source, self.edit, *self.branches)
        )
        vision_marks = self.vision_token, token_id(self.tokenizer, VISION_END_TOKEN)
        builder = TreeBuilder(len(self.root), self.vision_token, self.merge_size, self.flat)
        parent = None if source is None else builder.add(source_ids, parent=None, grids=[source], items=[0])
        reads: list[list[int]] = []
        words: list[int] = []
        for number, grid in enumerate(edits):
            edit = builder.add(edit_ids, parent=parent, grids=[grid], items=[number + (source is not None)])
            if self.branches:
                reads.append([])
                for ids in branch_ids:
                    builder.add(ids, parent=edit)
                    reads[-1].append(builder.size - 1)
                continue
            count = edit_ids.count(self.reward_token)
            tokens = list(range(builder.size - count, builder.size))
            reads.append(tokens if count > 1 else tokens * self.dimensions)
            last_vision = max(place for place, token in enumerate(edit_ids) if token in vision_marks)
            words.extend(range(builder.size - (len(edit_ids) - 1 - last_vision), builder.size))
        return builder.build(reads=reads, words=words)


def build_prompt(*, config: RewardModelConfig, tokenizer: PreTrainedTokenizerBase, merge_size: int) -> Prompt:
    """The prompt of a model, from its configuration and tokenizer."""
    presentation = config.presentation
    clip = presentation.layout == "clip"
    placeholder = VIDEO_TOKEN if clip else IMAGE_TOKEN
    branches: list[str] = []
    if presentation.prompt == "words":
        whole = (VIDEO_TOKEN if clip else _IMAGE * 2) + INSTRUCTION + REWARD_TOKEN
    elif presentation.prompt == "reference":
        texts = [_with_reward_token(text) for text in rubrics_of(presentation, config.dimensions)]
        rendered = [_rendered(tokenizer, [None, text] if clip else [None, None, text], clip=clip) for text in texts]
        last = VISION_END_TOKEN if VISION_END_TOKEN in rendered[0] else placeholder
        whole = rendered[0][: rendered[0].rindex(last) + len(last)]
        assert all(text.startswith(whole) for text in rendered)
        branches = [text.removeprefix(whole) for text in rendered]
    else:
        opening = "\n\n".join([INTRODUCTION, *rubrics_of(presentation, config.dimensions), "Original:"])
        asked = f"\nInstruction: {INSTRUCTION}\nEdit:"
        whole = _rendered(tokenizer, [opening, None, asked, None, "\nRatings: " + REWARD_TOKEN * len(config.dimensions)], clip=False)
    root, *parts = whole.split(placeholder)
    return Prompt(
        tokenizer=tokenizer,
        root=tuple(tokenise(tokenizer, root, "")),
        source="" if clip else placeholder + parts[0],
        edit=placeholder + parts[-1],
        branches=tuple(branches),
        dimensions=len(config.dimensions),
        vision_token=token_id(tokenizer, placeholder),
        reward_token=token_id(tokenizer, REWARD_TOKEN),
        reward_vectors=len(config.dimensions) if presentation.prompt == "rubric_first" else 1,
        merge_size=merge_size,
        flat=presentation.positions == "flat",
        max_instruction_tokens=presentation.max_instruction_tokens,
    )


def tokenise(tokenizer: PreTrainedTokenizerBase, template: str, instruction: str) -> list[int]:
    """Token ids of a template with the instruction put in; special tokens are those that the template spells."""
    added: dict[str, int] = tokenizer.get_added_vocab()
    pattern = "|".join(re.escape(token) for token in sorted(added, key=len, reverse=True))
    ids: list[int] = []
    for part in re.split(f"({pattern})", template):
        if part in added:
            ids.append(added[part])
        elif part:
            text = part.replace(INSTRUCTION, instruction)
            ids.extend(tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"])
    return ids


def _with_reward_token(rubric: str) -> str:
    """A rubric with the instruction's mark, up to its reward token, which is appended where the text has none."""
    text = rubric.replace("{instruction}", INSTRUCTION)
    before, _, _ = text.partition(REWARD_TOKEN)
    return before + REWARD_TOKEN


def _rendered(tokenizer: PreTrainedTokenizerBase, content: Sequence[str | None], *, clip: bool) -> str:
    """A user's turn of texts and vision inputs (None) in the backbone's chat template, up to its last reward token."""
    if tokenizer.chat_template is None:
        whole = "".join((VIDEO_TOKEN if clip else _IMAGE) if part is None else part for part in content)
    else:
        vision = {"type": "video" if clip else "image"}
        turn: Any = [vision if part is None else {"type": "text", "text": part} for part in content]
        whole = str(tokenizer.apply_chat_template([{"role": "user", "content": turn}], tokenize=False))
    return whole[: whole.rindex(REWARD_TOKEN) + len(REWARD_TOKEN)]
