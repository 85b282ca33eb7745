"""The tree of prompts of one source: it contains once what is common to its candidates, or to the dimensions of one candidate.

    root (constant) -> source -> candidate 1 -> dimension 1
                                             -> dimension 2
                              -> candidate 2 -> ...

A node is a run of tokens that follows its parent's. Attention is causal, so a node's states depend only on the path above it: the tree
gives what separate prompts would, in fewer tokens. Positions are those of the separate prompt, so siblings share theirs. The root is
the same for every source and is not part of the tree; its tokens are counted from 0, the tree's from the root's end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

Grid = tuple[int, int]
"""Rows and columns of patches of one vision input."""


@dataclass(frozen=True)
class Tree:
    """Prompts of one source and instruction, without the root.

    input_ids [token]; position_ids [3, token]; paths: per node (length, keys [before + length]), keys being the tokens of the path in
    order, root included; reads [candidate, dimension]: token that a head reads; items: number of the vision input of each run of
    placeholders, in the order of tokens; words [word]: tokens after the edited image, when the reward token is among them: with prompt
    `words`, the instruction and the reward token.
    """

    input_ids: Tensor
    position_ids: Tensor
    paths: tuple[tuple[int, Tensor], ...]
    reads: Tensor
    items: tuple[int, ...]
    words: Tensor

    def __len__(self) -> int:
        return len(self.input_ids)

    def edit_lengths(self) -> list[int]:
        """Tokens that each edit would have in a tree of its own, without the root."""
        ends = np.cumsum([length for length, _ in self.paths])
        root = len(self.paths[0][1]) - self.paths[0][0]
        nodes = [set(np.searchsorted(ends, reads, side="right").tolist()) for reads in self.reads.numpy()]
        return [len(torch.cat([self.paths[node][1] for node in of]).unique()) - root for of in nodes]

    def __reduce__(self) -> tuple[Any, ...]:
        tensors = (self.input_ids, self.position_ids, self.reads, self.words, *(keys for _, keys in self.paths))
        return _tree, ([tensor.numpy() for tensor in tensors], [length for length, _ in self.paths], self.items)


def _tree(arrays: list[np.ndarray], lengths: list[int], items: tuple[int, ...]) -> Tree:
    """Inverse of pickling, which uses arrays because tensors take many times as long. Copies, since shared memory must not be written."""
    ids, positions, reads, words, *keys = (torch.from_numpy(array.copy()) for array in arrays)
    return Tree(ids, positions, tuple(zip(lengths, keys, strict=True)), reads, items, words)


@dataclass
class TreeBuilder:
    """Grows a tree node by node. root: tokens of the root; positions continue after it."""

    root: int
    vision_token: int
    merge_size: int
    flat: bool
    _ids: list[Tensor] = field(default_factory=list)
    _positions: list[Tensor] = field(default_factory=list)
    _keys: list[Tensor] = field(default_factory=list)
    _ends: list[int] = field(default_factory=list)
    _items: list[int] = field(default_factory=list)
    size: int = 0

    def add(self, ids: Sequence[int], *, parent: int | None, grids: Sequence[Grid] = (), items: Sequence[int] = ()) -> int:
        """Append a node and return its number. ids hold one placeholder per vision input, grids and items say which they are."""
        expanded = expand(ids, grids, vision_token=self.vision_token, merge_size=self.merge_size)
        start = self.root if parent is None else self._ends[parent]
        positions, end = node_positions(expanded == self.vision_token, grids, start=start, merge_size=self.merge_size, flat=self.flat)
        before = torch.arange(self.root) if parent is None else self._keys[parent]  # tokens of the path above: root, then ancestors
        own = torch.arange(self.size, self.size + len(expanded)) + self.root
        self._ids.append(expanded)
        self._positions.append(positions)
        self._keys.append(torch.cat([before, own]))
        self._ends.append(end)
        self._items.extend(items)
        self.size += len(expanded)
        return len(self._ids) - 1

    def build(self, *, reads: list[list[int]], words: list[int]) -> Tree:
        """The finished tree; reads and words are tokens of the tree."""
        return Tree(
            input_ids=torch.cat(self._ids),
            position_ids=torch.cat(self._positions, dim=1),
            paths=tuple((len(ids), keys) for ids, keys in zip(self._ids, self._keys, strict=True)),
            reads=torch.tensor(reads),
            items=tuple(self._items),
            words=torch.tensor(words, dtype=torch.int64),
        )


def expand(ids: Sequence[int], grids: Sequence[Grid], *, vision_token: int, merge_size: int) -> Tensor:
    """[token]: each placeholder repeated once per language token of its vision input."""
    repeats = iter(grids)
    row: list[int] = []
    for token in ids:
        row.extend([token] * (vision_tokens(next(repeats), merge_size) if token == vision_token else 1))
    assert next(repeats, None) is None
    return torch.tensor(row, dtype=torch.int64)


def vision_tokens(grid: Grid, merge_size: int) -> int:
    """Number of language tokens of one vision input."""
    return grid[0] * grid[1] // merge_size**2


def node_positions(is_vision: Tensor, grids: Sequence[Grid], *, start: int, merge_size: int, flat: bool) -> tuple[Tensor, int]:
    """[3, token] temporal, height and width positions of a run of tokens, and the position after it.

    flat: a count of tokens on all three axes (what the published EditReward weights were trained with). Otherwise as the Qwen-VL families
    number them: text counts on all axes; an image has one time, its rows and columns count from there, and what follows begins
    after the longer side (Qwen2-VL, section 2.1, M-RoPE). Placeholders must not touch those of another input.
    """
    if flat:
        return torch.arange(start, start + len(is_vision)).expand(3, -1), start + len(is_vision)
    parts: list[Tensor] = []
    token, following = 0, start
    remaining = iter(grids)
    while token < len(is_vision):
        if is_vision[token]:
            rows, columns = (side // merge_size for side in next(remaining))
            # [3, rows * columns]: one time for the whole image; rows and columns count from the position after the text before it
            row, column = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
            parts.append(torch.stack([torch.zeros_like(row), row, column]).flatten(1) + following)
            token, following = token + rows * columns, following + max(rows, columns)
        else:
            vision = is_vision[token:].nonzero()
            length = int(vision[0]) if len(vision) else len(is_vision) - token
            parts.append(torch.arange(following, following + length).expand(3, -1))
            token, following = token + length, following + length
    return torch.cat(parts, dim=1) if parts else torch.empty(3, 0, dtype=torch.int64), following
