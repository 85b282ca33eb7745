"""Edits ready for the model: uint8 images with the tree of their prompts, and how any number of them becomes one packed row.

In: what `reward.inputs.processor` makes of a source and its candidates. `collate` joins any number of trees into a Batch. Each distinct
image of a
batch is one vision input, whichever trees show it. Nothing is padded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reward.inputs.prompt import Prompt
from reward.inputs.tree import Grid, Tree, vision_tokens


@dataclass(frozen=True)
class PreparedSample:
    """The edits of one source and instruction.

    stacks: uint8 [item, frame, height, width, 3] each, items of one size; numbered through in order. Pickled as arrays, which takes a small
    part of the time that tensors would.
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
    order [token]: where each token of the row stands in the blocks' outputs.
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
    [vision token]: its place in input_ids; feature [vision token]: its place among the features of all items.
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


def collate(sets: Sequence[PreparedSample], *, prompt: Prompt, patch_size: int, root_cached: bool = False) -> Batch:
    """Pack prepared edits; rows of `reads` come in the order of the sets and of the edits within a set.

    root_cached: leave the root's tokens out; the model is given their keys and values.
    """
    root = len(prompt.root)
    shift = 0 if root_cached else root  # of a token's number in the row against its number in the tree
    size = shift
    ids, positions = [], []
    if root and not root_cached:
        ids.append(torch.tensor(prompt.root))
        positions.append(torch.arange(root).expand(3, -1))
    reads, words, items = [], [], []
    stacks: list[Tensor] = []
    grid_of: list[Grid] = []  # per vision input
    number_of: dict[str, int] = {}  # by content
    shapes: dict[tuple[int, int], tuple[list[Tensor], list[Tensor]]] = {}  # (length, keys) -> queries, keys
    if root and not root_cached:
        shapes[root, root] = ([torch.arange(root)], [torch.arange(root)])
    for prepared in sets:
        tree = prepared.tree
        numbers: list[int] = []  # of the tree's vision inputs, among those of the batch
        contents = iter(prepared.contents)
        for stack in prepared.stacks:
            fresh = []
            for place, content in zip(range(len(stack)), contents, strict=False):
                if content not in number_of:
                    number_of[content] = len(grid_of)
                    grid_of.append((stack.shape[2] // patch_size, stack.shape[3] // patch_size))
                    fresh.append(place)
                numbers.append(number_of[content])
            if fresh:
                stacks.append(stack if len(fresh) == len(stack) else stack[fresh])
        items.extend(numbers[item] for item in tree.items)
        ids.append(tree.input_ids)
        positions.append(tree.position_ids)
        reads.append(tree.reads + size)
        words.append(tree.words + size)
        for length, path in tree.paths:
            keys = torch.where(path < root, path, path + (size - shift))
            queries, all_keys = shapes.setdefault((length, len(path)), ([], []))
            queries.append(keys[-length:] - (root - shift))
            all_keys.append(keys)
        size += len(tree)
    input_ids = torch.cat(ids)
    blocks = tuple((torch.stack(queries), torch.stack(keys)) for queries, keys in shapes.values())
    joined = [torch.cat(list(run)) for _, run in groupby(stacks, key=lambda stack: stack.shape[1:])]
    counts = torch.tensor([vision_tokens(grid, prompt.merge_size) for grid in grid_of])
    return Batch(
        input_ids=input_ids,
        position_ids=torch.cat(positions, dim=1),
        reads=torch.cat(reads),
        words=torch.cat(words),
        stacks=tuple(joined),
        grids=tuple((stack.shape[2] // patch_size, stack.shape[3] // patch_size) for stack in joined),
        placeholder=(input_ids == prompt.vision_token).nonzero()[:, 0],
        feature=_ranges(counts, torch.tensor(items)),
        attention=TreeAttention(blocks=blocks, order=torch.cat([queries.flatten() for queries, _ in blocks]).argsort()),
    )


def packed(prepared: Iterable[PreparedSample], budget: int) -> Iterator[list[PreparedSample]]:
    """Consecutive sets, as many as fit into a budget of tokens (at least one)."""
    part: list[PreparedSample] = []
    used = 0
    for item in prepared:
        if part and used + len(item.tree) > budget:
            yield part
            part, used = [], 0
        part.append(item)
        used += len(item.tree)
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
    """For items in order, the numbers of their features: item i owns counts[i] features after those of 0..i-1."""
    starts = counts.cumsum(0) - counts
    lengths = counts[items]  # [slot]
    within = torch.arange(int(lengths.sum())) - (lengths.cumsum(0) - lengths).repeat_interleave(lengths)
    return starts[items].repeat_interleave(lengths) + within
