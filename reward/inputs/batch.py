"""Edits ready for the model: uint8 images with the tree of their prompts, and how any number of them becomes one packed row.

In: `PreparedSample`s, from `reward.inputs.processor`. Out: a Batch, by `collate`. Each distinct image of a batch is one vision input,
whichever samples show it. Nothing is padded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, groupby
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from reward.inputs.device import on_device
from reward.inputs.prompt import Prompt
from reward.inputs.tree import Grid, Tree, vision_tokens
from reward.inputs.vision import VisionLayout, VisionSizes, vision_layout


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

    Nodes come block by block; a block is nodes of one shape. queries [query], keys [key]: numbers of tokens, node after node, in the order
    of the path; keys are counted from the cached root on, when there is one, queries from the row's first token. shapes: per block (nodes,
    length, before + length), the last two being a node's queries and keys. query_bounds, key_bounds, int32 [node + 1]: where each node's
    begin, and the end of the last. order [token]: index of each token of the row among the queries.
    root: per layer, keys and values of a cached root; record: list that the row's own are appended to.
    """

    queries: Tensor
    keys: Tensor
    shapes: tuple[tuple[int, int, int], ...]
    query_bounds: Tensor
    key_bounds: Tensor
    order: Tensor
    root: tuple[KeysValues, ...] | None = None
    record: list[KeysValues] | None = field(default=None, compare=False)

    @classmethod
    def of(cls, blocks: Iterable[tuple[Tensor, Tensor]], record: list[KeysValues] | None = None) -> TreeAttention:
        """From blocks of (queries [node, length], keys [node, before + length])."""
        blocks = list(blocks)
        queries, keys = (torch.cat([block.flatten() for block in side]) for side in zip(*blocks, strict=True))
        # Outputs come block by block; the inverse of the permutation that the queries are puts them back into the row's order.
        return cls(
            queries=queries,
            keys=keys,
            shapes=tuple((len(asked), asked.shape[1], seen.shape[1]) for asked, seen in blocks),
            query_bounds=_bounds([asked.shape for asked, _ in blocks]),
            key_bounds=_bounds([seen.shape for _, seen in blocks]),
            order=queries.argsort(),
            record=record,
        )

    @cached_property
    def blocks(self) -> list[tuple[Tensor, Tensor]]:
        """Views of queries and keys: (queries [node, length], keys [node, before + length]) per block."""
        asked = self.queries.split([nodes * length for nodes, length, _ in self.shapes])
        seen = self.keys.split([nodes * path for nodes, _, path in self.shapes])
        sides = zip(self.shapes, asked, seen, strict=True)
        return [(queries.unflatten(0, (nodes, -1)), keys.unflatten(0, (nodes, -1))) for (nodes, _, _), queries, keys in sides]

    @property
    def longest(self) -> tuple[int, int]:
        """The most queries and the most keys of a node."""
        return max(length for _, length, _ in self.shapes), max(path for _, _, path in self.shapes)


@dataclass(frozen=True)
class Batch:
    """What the model reads: one packed row.

    input_ids [token]; position_ids [3, token]; reads [edit, dimension]: token that a head reads; words [word]: tokens of the instructions
    (prompt `words`); stacks: uint8 [item, frame, height, width, 3] each; grids: (rows, columns) of patches per stack; vision: what the
    vision tower derives from them, None without images; placeholder [vision token]: its index in input_ids; feature [vision token]: its
    index among the features of all items; rewards [reward token]: its index in input_ids; turns [reward token]: which of the model's reward
    vectors it is.
    """

    input_ids: Tensor
    position_ids: Tensor
    reads: Tensor
    words: Tensor
    stacks: tuple[Tensor, ...]
    grids: tuple[Grid, ...]
    vision: VisionLayout | None
    placeholder: Tensor
    feature: Tensor
    rewards: Tensor
    turns: Tensor
    attention: TreeAttention

    def to(self, device: torch.device) -> Batch:
        """The same batch on a device."""
        return self if device == self.input_ids.device else on_device(self, device)


def collate(samples: Sequence[PreparedSample], *, prompt: Prompt, sizes: VisionSizes, root_cached: bool = False) -> Batch:
    """Pack prepared edits; rows of `reads` come in the order of the samples and of the edits within a sample.

    sizes: of the model's vision tower. root_cached: leave the root's tokens out; the model is given their keys and values.
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
    # The vision tower takes one tensor per run of equal sizes; joining neighbours keeps the order in which inputs are numbered.
    stacks = tuple(torch.stack(list(run)) for _, run in groupby(distinct, key=lambda image: image.shape))
    grids = tuple((stack.shape[2] // sizes.patch_size, stack.shape[3] // sizes.patch_size) for stack in stacks)
    counts = torch.tensor([vision_tokens(grid, prompt.merge_size) for grid, stack in zip(grids, stacks, strict=True) for _ in stack])
    rewards = (input_ids == prompt.reward_token).nonzero()[:, 0]
    return Batch(
        input_ids=input_ids,
        position_ids=torch.cat(positions, dim=1),
        reads=torch.cat(reads),
        words=torch.cat(words),
        stacks=stacks,
        grids=grids,
        vision=vision_layout(tuple((grid, len(stack)) for grid, stack in zip(grids, stacks, strict=True)), sizes) if stacks else None,
        placeholder=(input_ids == prompt.vision_token).nonzero()[:, 0],
        feature=_ranges(counts, torch.tensor(items)),
        rewards=rewards,
        turns=torch.arange(len(rewards)) % prompt.reward_vectors,
        attention=TreeAttention.of((torch.stack(queries), torch.stack(keys)) for queries, keys in shapes.values()),
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


def _bounds(shapes: Iterable[Sequence[int]]) -> Tensor:
    """int32 [node + 1]: where each node's tokens begin, and the end of the last; shapes: (nodes, tokens) per block."""
    lengths = torch.tensor([tokens for nodes, tokens in shapes for _ in range(nodes)])
    return F.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
