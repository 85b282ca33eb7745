"""Attention in blocks: within each image for the vision tower, along the paths of a tree of prompts for the language model.

Both are registered with transformers and called in place of its own attention. Tokens of many images, or of many prompts, are in one row;
no block attends to another's tokens, and no mask over the whole row is ever made. Blocks of one shape become the batch of one
scaled_dot_product_attention call. Values and gradients are those of separate calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import groupby
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface

from reward.inputs.batch import TreeAttention

IMAGES = "images_flash"
"""Registered name; transformers passes the images' bounds to implementations whose name contains "flash"."""
TREE = "tree_blocks"
TREE_VARLEN = "tree_varlen"
"""The same attention by one variable-length flash kernel; CUDA and half precision only."""


def image_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    cu_seq_lens_q: Tensor,
    **_: Any,
) -> tuple[Tensor, None]:
    """query, key, value [1, head, token, width]; segments [cu[i], cu[i + 1]) see themselves only -> [1, token, head, width]."""
    assert attention_mask is None
    outputs = []
    start = 0
    for length, run in groupby((cu_seq_lens_q[1:] - cu_seq_lens_q[:-1]).tolist()):
        count = len(list(run))
        stop = start + count * length
        q, k, v = (_segments(tensor[0, :, start:stop], count) for tensor in (query, key, value))
        attended = F.scaled_dot_product_attention(q, k, v, scale=scaling)  # [segment, head, token, width]
        outputs.append(attended.transpose(1, 2).flatten(0, 1))
        start = stop
    return torch.cat(outputs)[None] if len(outputs) > 1 else outputs[0][None], None


def _segments(tensor: Tensor, count: int) -> Tensor:
    """[head, segment * token, width] -> [segment, head, token, width]"""
    return tensor.unflatten(1, (count, -1)).transpose(0, 1)


def tree_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    tree: TreeAttention,
    *,
    attend: Callable[[TreeAttention, Tensor, Tensor, Tensor, float], Tensor],
    **_: Any,
) -> tuple[Tensor, None]:
    """query [1, head, token, width], key, value [1, key head, token, width] -> [1, token, head, width].

    attend: takes [token, head, width], the cached root's keys and values in front; gives the outputs of the blocks in their order.
    """
    assert attention_mask is None
    if tree.record is not None:
        tree.record.append((key, value))
    if tree.root is not None:
        root_key, root_value = tree.root[module.layer_idx]  # ty: ignore[invalid-argument-type]
        key, value = torch.cat([root_key, key], dim=2), torch.cat([root_value, value], dim=2)
    query, key, value = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    return attend(tree, query, key, value, scaling).index_select(0, tree.order)[None], None


def by_blocks(tree: TreeAttention, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
    """Nodes of one shape in one call of scaled_dot_product_attention."""
    outputs = []
    for queries, keys in tree.blocks:
        q = query.index_select(0, queries.flatten()).unflatten(0, queries.shape).transpose(1, 2)  # [node, head, length, width]
        k = key.index_select(0, keys.flatten()).unflatten(0, keys.shape).transpose(1, 2)  # [node, key head, before + length, width]
        v = value.index_select(0, keys.flatten()).unflatten(0, keys.shape).transpose(1, 2)
        seen = _causal(queries.shape[1], keys.shape[1], query.device)
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=scaling, enable_gqa=True)
        outputs.append(attended.transpose(1, 2).flatten(0, 1))  # [node * length, head, width]
    return torch.cat(outputs)


@lru_cache(maxsize=64)
def _causal(length: int, keys: int, device: torch.device) -> Tensor:
    """[length, keys]: what the last `length` tokens of a path of `keys` see; kept, since every layer asks for it."""
    return torch.ones(length, keys, dtype=torch.bool, device=device).tril(keys - length)


def by_varlen(tree: TreeAttention, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
    """All nodes in one call of torch's variable-length flash attention (causal from the lower right)."""
    from torch.nn.attention.varlen import varlen_attn

    queries, keys = zip(*tree.blocks, strict=True)  # [node, length] each, [node, before + length] each
    asked, seen = torch.cat([block.flatten() for block in queries]), torch.cat([block.flatten() for block in keys])
    attended: Any = varlen_attn(
        query.index_select(0, asked),
        key.index_select(0, seen),
        value.index_select(0, seen),
        _bounds(queries),
        _bounds(keys),
        max(block.shape[1] for block in queries),
        max(block.shape[1] for block in keys),
        scale=scaling,
        window_size=(-1, 0),
        enable_gqa=True,
    )
    return attended


def _bounds(blocks: Sequence[Tensor]) -> Tensor:
    """int32 [node + 1], on the blocks' device: where each node's tokens begin, and the end of the last."""
    lengths = torch.tensor([block.shape[1] for block in blocks for _ in range(len(block))], dtype=torch.int32)
    return F.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0)).to(blocks[0].device)


AttentionInterface.register(IMAGES, image_attention)
AttentionInterface.register(TREE, partial(tree_attention, attend=by_blocks))
AttentionInterface.register(TREE_VARLEN, partial(tree_attention, attend=by_varlen))
