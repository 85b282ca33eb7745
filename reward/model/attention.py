"""Attention in blocks: within each image for the vision tower, along the paths of a tree of prompts for the language model.

Both are registered with transformers and called in place of its own attention. Tokens of many images, or of many prompts, are in one row;
no block attends to another's tokens, and no mask over the whole row is ever made. Blocks of one shape become the batch of one
scaled_dot_product_attention call. Values and gradients are those of separate calls.
"""

from __future__ import annotations

from functools import lru_cache
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


def _tokens_first(tree: TreeAttention, module: nn.Module, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """[1, head, token, width] -> [token, head, width], the cached root's keys and values in front."""
    if tree.record is not None:
        tree.record.append((key, value))
    if tree.root is not None:
        root_key, root_value = tree.root[module.layer_idx]  # ty: ignore[invalid-argument-type]
        key, value = torch.cat([root_key, key], dim=2), torch.cat([root_value, value], dim=2)
    return query[0].transpose(0, 1), key[0].transpose(0, 1), value[0].transpose(0, 1)


def tree_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    tree: TreeAttention,
    **_: Any,
) -> tuple[Tensor, None]:
    """query [1, head, token, width], key, value [1, key head, token, width] -> [1, token, head, width]."""
    assert attention_mask is None
    query, key, value = _tokens_first(tree, module, query, key, value)
    outputs = []
    for queries, keys in tree.blocks:
        q = query.index_select(0, queries.flatten()).unflatten(0, queries.shape).transpose(1, 2)  # [node, head, length, width]
        k = key.index_select(0, keys.flatten()).unflatten(0, keys.shape).transpose(1, 2)  # [node, key head, before + length, width]
        v = value.index_select(0, keys.flatten()).unflatten(0, keys.shape).transpose(1, 2)
        seen = _causal(queries.shape[1], keys.shape[1], query.device)
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, scale=scaling, enable_gqa=True)
        outputs.append(attended.transpose(1, 2).flatten(0, 1))  # [node * length, head, width]
    return torch.cat(outputs).index_select(0, tree.order)[None], None


@lru_cache(maxsize=64)
def _causal(length: int, keys: int, device: torch.device) -> Tensor:
    """[length, keys]: what the last `length` tokens of a path of `keys` see; kept, since every layer asks for it."""
    return torch.ones(length, keys, dtype=torch.bool, device=device).tril(keys - length)


def tree_attention_varlen(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    tree: TreeAttention,
    **_: Any,
) -> tuple[Tensor, None]:
    """As tree_attention, all nodes in one call of torch's variable-length flash attention (causal from the lower right)."""
    from torch.nn.attention.varlen import varlen_attn

    assert attention_mask is None
    query, key, value = _tokens_first(tree, module, query, key, value)
    queries = torch.cat([block[0].flatten() for block in tree.blocks])
    keys = torch.cat([block[1].flatten() for block in tree.blocks])
    shapes = [(block[0].shape, block[1].shape) for block in tree.blocks]
    attended: Any = varlen_attn(
        query.index_select(0, queries),
        key.index_select(0, keys),
        value.index_select(0, keys),
        _bounds([q for q, _ in shapes], query.device),
        _bounds([k for _, k in shapes], query.device),
        max(q[1] for q, _ in shapes),
        max(k[1] for _, k in shapes),
        scale=scaling,
        window_size=(-1, 0),
        enable_gqa=True,
    )
    return attended.index_select(0, tree.order)[None], None


def _bounds(shapes: list[torch.Size], device: torch.device) -> Tensor:
    """int32 [node + 1]: where each node's tokens begin, and the end of the last."""
    lengths = torch.tensor([length for count, length in shapes for _ in range(count)], dtype=torch.int32)
    return F.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0)).to(device)


AttentionInterface.register(IMAGES, image_attention)
AttentionInterface.register(TREE, tree_attention)
AttentionInterface.register(TREE_VARLEN, tree_attention_varlen)
