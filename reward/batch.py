"""Edits ready for the model: decoded once, resized, and collated into one packed row.

`present` decodes a source and its candidates into uint8 stacks and builds the tree of their prompts; `collate` joins any number of trees
into a Batch. Each distinct image is one vision input; a source that several candidates share is encoded once. Nothing is padded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import torch
from torch import Tensor

from reward.attention import TreeAttention
from reward.config import PresentationConfig
from reward.images import decode, fitted_size, resize
from reward.prompt import Prompt
from reward.sample import ImageInput
from reward.tree import Grid, Tree, vision_tokens


@dataclass(frozen=True)
class Presented:
    """The edits of one source and instruction.

    stacks: uint8 [item, frame, height, width, 3] each, items of one size; numbered through in order.
    """

    stacks: tuple[Tensor, ...]
    tree: Tree

    @property
    def bytes(self) -> int:
        """Memory of the decoded images."""
        return sum(stack.numel() for stack in self.stacks)


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


def present(
    *,
    source: ImageInput,
    candidates: Sequence[ImageInput],
    instruction: str,
    presentation: PresentationConfig,
    prompt: Prompt,
    patch_size: int,
) -> Presented:
    """Decode and resize one source and its candidates. Raises SampleError for what cannot be shown."""
    prompt.check(instruction)
    factor = patch_size * prompt.merge_size
    area = presentation.min_image_area or presentation.image_area, presentation.image_area
    original = decode(source, what="source image")
    size = fitted_size(*original.size, factor=factor, area=area, what="source image")
    first = resize(original, size)
    edits = []
    for data in candidates:
        edited = decode(data, what="edited image")
        if presentation.layout == "images":
            size = fitted_size(*edited.size, factor=factor, area=area, what="edited image")
        edits.append(resize(edited, size))
    if presentation.layout == "clip":
        stacks: tuple[Tensor, ...] = (torch.stack([torch.stack([first, edit]) for edit in edits]),)
        shared = None
    else:
        items = [image[None] for image in (first, *edits)]
        stacks = tuple(torch.stack(list(run)) for _, run in groupby(items, key=lambda item: item.shape))
        shared = _grid(first, patch_size)
    tree = prompt.tree(source=shared, edits=[_grid(edit, patch_size) for edit in edits], instruction=instruction)
    return Presented(stacks, tree)


def collate(sets: Sequence[Presented], *, prompt: Prompt, patch_size: int, root_cached: bool = False) -> Batch:
    """Pack presented edits; rows of `reads` come in the order of the sets and of the edits within a set.

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
    shapes: dict[tuple[int, int], tuple[list[Tensor], list[Tensor]]] = {}  # (length, keys) -> queries, keys
    if root and not root_cached:
        shapes[root, root] = ([torch.arange(root)], [torch.arange(root)])
    for presented in sets:
        tree = presented.tree
        items.extend(len(grid_of) + item for item in tree.items)
        for stack in presented.stacks:
            grid_of.extend([(stack.shape[2] // patch_size, stack.shape[3] // patch_size)] * len(stack))
        stacks.extend(presented.stacks)
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


def packed(presented: Sequence[Presented], budget: int) -> Iterator[list[Presented]]:
    """Consecutive sets, as many as fit into a budget of tokens (at least one)."""
    part: list[Presented] = []
    used = 0
    for item in presented:
        if part and used + len(item.tree) > budget:
            yield part
            part, used = [], 0
        part.append(item)
        used += len(item.tree)
    if part:
        yield part


def _grid(image: Tensor, patch_size: int) -> Grid:
    return image.shape[0] // patch_size, image.shape[1] // patch_size


def _ranges(counts: Tensor, items: Tensor) -> Tensor:
    """For items in order, the numbers of their features: item i owns counts[i] features after those of 0..i-1."""
    starts = counts.cumsum(0) - counts
    lengths = counts[items]  # [slot]
    within = torch.arange(int(lengths.sum())) - (lengths.cumsum(0) - lengths).repeat_interleave(lengths)
    return starts[items].repeat_interleave(lengths) + within
