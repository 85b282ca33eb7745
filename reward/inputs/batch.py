"""Edits ready for the model: uint8 images with the tree of their prompts, and how any number of them becomes one packed row.

In: `PreparedSample`s, from `reward.inputs.processor`. Out: a Batch, by `collate`. Each distinct image of a batch is one vision input,
whichever samples show it. Nothing is padded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reward.inputs.prompt import Prompt
from reward.inputs.tree import Grid, Tree, vision_tokens


@dataclass(frozen=True)
class PreparedSample:
    """The edits of one source and instruction.

    stacks: uint8 [item, frame, height, width, 3] each, items of one size; numbered in order over all stacks. Pickled as arrays, which is
    many times faster than as tensors.
    """

    stacks: tuple[Tensor, ...]
    tree: Tree
    instruction: str

    @property
    def bytes(self) -> int:
        """Memory of the decoded images."""
        return sum(stack.numel() for stack in self.stacks)

    @cached_property
    def contents(self) -> tuple[str, ...]:
        """Hash of the pixels of each vision input: equal ones need to be encoded only once."""
        return tuple(_content(item) for stack in self.stacks for item in stack)

    def __reduce__(self) -> tuple[Any, ...]:
        return _prepared, ([stack.numpy() for stack in self.stacks], self.tree, self.instruction, self.contents)


KeysValues = tuple[Tensor, Tensor]
"""Keys and values of one layer, [1, head, token, width] each."""


@dataclass(frozen=True)
class TreeAttention:
    """What the tokens of a packed row see: their own node up to themselves, and all of its ancestors.

    blocks: nodes of one shape each, (queries [node, length], keys [node, before + length]): numbers of tokens, in the order of the path;
    keys are counted from the cached root on, when there is one, queries from the row's first token.
    order [token]: index of each token of the row in the blocks' outputs.
    root: per layer, keys and values of a cached root; record: list that the row's own are appended to.
    """

    blocks: tuple[tuple[Tensor, Tensor], ...]
    order: Tensor
    root: tuple[KeysValues, ...] | None = None
    record: list[KeysValues] | None = field(default=None, compare=False)

    def to(self, device: torch.device) -> TreeAttention:
        """The same blocks on a device."""
        blocks = tuple((queries.to(device), keys.to(device)) for queries, keys in self.blocks)
        return replace(self, blocks=blocks, order=self.order.to(device))


@dataclass(frozen=True)
class Batch:
    """What the model reads: one packed row.

    input_ids [token]; position_ids [3, token]; reads [edit, dimension]: token that a head reads; words [word]: tokens of the instructions
    (prompt `words`); stacks: uint8 [item, frame, height, width, 3] each; grids: (rows, columns) of patches per stack; placeholder
    [vision token]: its index in input_ids; feature [vision token]: its index among the features of all items.
    """

    input_ids: Tensor
    position_ids: Tensor
    reads: Tensor
    words: Tensor
    stacks: tuple[Tensor, ...]
    grids: tuple[Grid, ...]
    placeholder: Tensor
    feature: Tensor
    attention: TreeAttention

    def to(self, device: torch.device) -> Batch:
        """The same batch on a device."""
        if device == self.input_ids.device:
            return self
        moved = {name: value.to(device, non_blocking=True) for name, value in vars(self).items() if isinstance(value, Tensor)}
        stacks = tuple(stack.to(device, non_blocking=True) for stack in self.stacks)
        return replace(self, stacks=stacks, attention=self.attention.to(device), **moved)


def collate(samples: Sequence[PreparedSample], *, prompt: Prompt, patch_size: int, root_cached: bool = False) -> Batch:
    """Pack prepared edits; rows of `reads` come in the order of the samples and of the edits within a sample.

    root_cached: leave the root's tokens out; the model is given their keys and values.
    """
    root = len(prompt.root)
    cached = root if root_cached else 0  # keys that come before those of the row's own tokens
    in_row = root - cached  # tokens of the root in the row
    ids, positions = [torch.tensor(prompt.root[:in_row], dtype=torch.int64)], [torch.arange(in_row).expand(3, -1)]
    reads, words, items = [], [], []
    number_of: dict[str, int] = {}  # content -> number of the vision input; equal ones are encoded once, whichever samples show them
    distinct: list[Tensor] = []  # uint8 [frame, height, width, 3] each, by number
    # Nodes of one shape (length, keys) become the batch of one attention call: queries [node, length], keys [node, keys].
    shapes: dict[tuple[int, int], tuple[list[Tensor], list[Tensor]]] = {}
    if in_row:
        shapes[root, root] = ([torch.arange(root)], [torch.arange(root)])
    start = in_row  # of the next tree in the row
    for sample in samples:
        tree = sample.tree
        for content, image in zip(sample.contents, chain.from_iterable(sample.stacks), strict=True):
            if content not in number_of:
                number_of[content] = len(distinct)
                distinct.append(image)
        items.extend(number_of[sample.contents[item]] for item in tree.items)
        ids.append(tree.input_ids)
        positions.append(tree.position_ids)
        reads.append(tree.reads + start)
        words.append(tree.words + start)
        for length, path in tree.paths:
            # A path counts the root's tokens from 0 and the tree's from `root` on. All trees share the root's; this tree's are moved to
            # where it begins in the row. Keys are counted from the cached root on, queries (the path's last `length`) from the row's start.
            keys = torch.where(path < root, path, path + (start - in_row))
            queries, all_keys = shapes.setdefault((length, len(path)), ([], []))
            queries.append(keys[-length:] - cached)
            all_keys.append(keys)
        start += len(tree)
    input_ids = torch.cat(ids)
    blocks = tuple((torch.stack(queries), torch.stack(keys)) for queries, keys in shapes.values())
    # The vision tower takes one tensor per run of equal sizes; joining neighbours keeps the order in which inputs are numbered.
    stacks = tuple(torch.stack(list(run)) for _, run in groupby(distinct, key=lambda image: image.shape))
    grids = tuple((stack.shape[2] // patch_size, stack.shape[3] // patch_size) for stack in stacks)
    counts = torch.tensor([vision_tokens(grid, prompt.merge_size) for grid, stack in zip(grids, stacks, strict=True) for _ in stack])
    return Batch(
        input_ids=input_ids,
        position_ids=torch.cat(positions, dim=1),
        reads=torch.cat(reads),
        words=torch.cat(words),
        stacks=stacks,
        grids=grids,
        placeholder=(input_ids == prompt.vision_token).nonzero()[:, 0],
        feature=_ranges(counts, torch.tensor(items)),
        # Outputs come block by block; the inverse of the permutation that the queries are puts them back into the row's order.
        attention=TreeAttention(blocks=blocks, order=torch.cat([queries.flatten() for queries, _ in blocks]).argsort()),
    )


def packed(samples: Iterable[PreparedSample], budget: int) -> Iterator[list[PreparedSample]]:
    """Consecutive samples, as many as fit into a budget of tokens (at least one)."""
    part: list[PreparedSample] = []
    used = 0
    for sample in samples:
        if part and used + len(sample.tree) > budget:
            yield part
            part, used = [], 0
        part.append(sample)
        used += len(sample.tree)
    if part:
        yield part


def _content(item: Tensor) -> str:
    """Hash of the pixels and the shape of one vision input, uint8 [frame, height, width, 3]."""
    return hashlib.sha256(repr(tuple(item.shape)).encode() + item.numpy().tobytes()).hexdigest()


def _prepared(stacks: list[np.ndarray], tree: Tree, instruction: str, contents: tuple[str, ...]) -> PreparedSample:
    """Inverse of pickling. The arrays are copied: those that come from shared memory must not be written to."""
    made = PreparedSample(tuple(torch.from_numpy(stack.copy()) for stack in stacks), tree, instruction)
    vars(made)["contents"] = contents
    return made


def _ranges(counts: Tensor, items: Tensor) -> Tensor:
    """For items in order, the numbers of their features: item i has counts[i] features, after those of 0..i-1.

    counts [item], items [slot] -> [sum of counts[items]]; an item may fill several slots.
    """
    starts = counts.cumsum(0) - counts  # [item]
    lengths = counts[items]  # [slot]
    within = torch.arange(int(lengths.sum())) - (lengths.cumsum(0) - lengths).repeat_interleave(lengths)  # 0.. in each slot
    return starts[items].repeat_interleave(lengths) + within
