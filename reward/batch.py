"""Edits ready for the model: decoded once, resized, and collated without a loop over images where sizes agree.

`present` decodes a source and its candidates into uint8 stacks; `collate` joins any number of such sets into a Batch. Each
distinct image is one vision input; in the `images` layout a source that several candidates share is encoded once.
Rows are padded on the right and carry no mask: attention is causal, so nothing that is read can see the padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import torch
from torch import Tensor

from reward.config import PresentationConfig
from reward.images import decode, fitted_size, resize
from reward.prompt import Grid, Prompt, vision_tokens


@dataclass(frozen=True)
class Presented:
    """The edits of one source and instruction.

    stacks: uint8 [item, frame, height, width, 3] each, items of one size; numbered through in order.
    rows: per edit, the numbers of its vision inputs.
    """

    stacks: tuple[Tensor, ...]
    rows: tuple[tuple[int, ...], ...]
    instruction: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Memory of the decoded images."""
        return sum(stack.numel() for stack in self.stacks)


@dataclass(frozen=True)
class Batch:
    """What the model reads.

    input_ids [row, token]; position_ids [3, row, token]; reward_index [row]: place of the reward token;
    instruction_start [row]: place of its first word; stacks: uint8 [item, frame, height, width, 3] each;
    grids: (rows, columns) of patches per stack; placeholder [vision token]: its place in input_ids, flattened;
    feature [vision token]: its place among the features of all items.
    """

    input_ids: Tensor
    position_ids: Tensor
    reward_index: Tensor
    instruction_start: Tensor
    stacks: tuple[Tensor, ...]
    grids: tuple[Grid, ...]
    placeholder: Tensor
    feature: Tensor

    def to(self, device: torch.device) -> Batch:
        """The same batch on a device."""
        if device == self.input_ids.device:
            return self
        moved = {name: value.to(device) for name, value in vars(self).items() if isinstance(value, Tensor)}
        return replace(self, stacks=tuple(stack.to(device) for stack in self.stacks), **moved)


def present(
    *,
    source: bytes,
    candidates: Sequence[bytes],
    instruction: str,
    presentation: PresentationConfig,
    prompt: Prompt,
    factor: int,
) -> Presented:
    """Decode and resize one source and its candidates. Raises SampleError for what cannot be shown.

    factor: image sides become multiples of it (patch size times merge size).
    """
    instruction_ids = prompt.instruction_ids(instruction)
    original = decode(source, what="source image")
    area = presentation.image_area
    size = fitted_size(*original.size, factor=factor, area=area, what="source image")
    first = resize(original, size)
    edits = []
    for data in candidates:
        edited = decode(data, what="edited image")
        if presentation.layout == "images":
            size = fitted_size(*edited.size, factor=factor, area=area, what="edited image")
        edits.append(resize(edited, size))
    if presentation.layout == "clip":
        stack = torch.stack([torch.stack([first, edit]) for edit in edits])
        return Presented((stack,), tuple((row,) for row in range(len(edits))), instruction_ids)
    items = [image[None] for image in (first, *edits)]
    stacks = tuple(torch.stack(list(run)) for _, run in groupby(items, key=lambda item: item.shape))
    return Presented(stacks, tuple((0, row + 1) for row in range(len(edits))), instruction_ids)


def collate(sets: Sequence[Presented], *, prompt: Prompt, patch_size: int) -> Batch:
    """Join presented edits; rows come in the order of the sets and of the edits within a set."""
    stacks: list[Tensor] = []
    slots: list[tuple[int, ...]] = []  # per row, numbers of its vision inputs in the batch
    grid_of: list[Grid] = []  # per vision input
    ids: list[Tensor] = []
    positions: list[Tensor] = []
    closing: list[int] = []  # per row, tokens from the first word on
    for presented in sets:
        offset = len(grid_of)
        for stack in presented.stacks:
            grid_of.extend([(stack.shape[2] // patch_size, stack.shape[3] // patch_size)] * len(stack))
        stacks.extend(presented.stacks)
        known: dict[tuple[Grid, ...], tuple[Tensor, Tensor]] = {}
        for row in presented.rows:
            items = tuple(offset + item for item in row)
            grids = tuple(grid_of[item] for item in items)
            if grids not in known:
                row_ids = prompt.ids(grids, presented.instruction)
                known[grids] = row_ids, prompt.positions(grids, row_ids)
            slots.append(items)
            closing.append(len(presented.instruction) + len(prompt.tail))
            ids.append(known[grids][0])
            positions.append(known[grids][1])
    joined = [torch.cat(list(run)) for _, run in groupby(stacks, key=lambda stack: stack.shape[1:])]
    lengths = torch.tensor([len(row) for row in ids])
    pad = prompt.tokenizer.pad_token_id
    input_ids = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=pad)
    position_ids = torch.nn.utils.rnn.pad_sequence([row.T for row in positions], batch_first=True).permute(2, 0, 1)
    counts = torch.tensor([vision_tokens(grid, prompt.merge_size) for grid in grid_of])
    return Batch(
        input_ids=input_ids,
        position_ids=position_ids,
        reward_index=lengths - 1,
        instruction_start=lengths - torch.tensor(closing),
        stacks=tuple(joined),
        grids=tuple((stack.shape[2] // patch_size, stack.shape[3] // patch_size) for stack in joined),
        placeholder=(input_ids == prompt.vision_token).flatten().nonzero()[:, 0],
        feature=_ranges(counts, torch.tensor([item for row in slots for item in row])),
    )


def _ranges(counts: Tensor, items: Tensor) -> Tensor:
    """For items in order, the numbers of their features: item i owns counts[i] features after those of 0..i-1."""
    starts = counts.cumsum(0) - counts
    lengths = counts[items]  # [slot]
    within = torch.arange(int(lengths.sum())) - (lengths.cumsum(0) - lengths).repeat_interleave(lengths)
    return starts[items].repeat_interleave(lengths) + within
