"""Attention in blocks: within each image or window for the vision tower, along the paths of a tree of prompts for the language model.

Both are registered with transformers and called in place of its own attention. Tokens of many images, or of many prompts, are in one row;
no block attends to another's tokens, and no mask over the whole row is ever made. What depends on lengths comes with the batch
(`reward.inputs.batch`, `reward.inputs.vision`). Values and gradients are those of separate calls. There are two ways:

- blocks: blocks of one shape become the batch of one scaled_dot_product_attention call; windows of several lengths are padded to the
  longest. Works everywhere.
- varlen: all blocks in one call of torch's variable-length flash attention. CUDA and half precision only.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import varlen
from transformers import AttentionInterface

from reward.inputs.batch import TreeAttention
from reward.inputs.vision import Segments

Kind = Literal["auto", "blocks", "varlen"]
"""auto: varlen where it can run, decided anew in each call, so that weights may be float32 under autocast."""
IMAGES = "images_flash_{kind}"
"""Registered names; transformers passes the images' bounds to implementations whose name contains "flash"."""
TREE = "tree_{kind}"
LARGEST_HEAD = 256
"""Width of a head that the flash kernel takes; it must be a multiple of 8 too."""


def image_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    cu_seq_lens_q: Segments,
    *,
    kind: Kind,
    **_: Any,
) -> tuple[Tensor, None]:
    """query, key, value [1, head, token, width]; the tokens of a segment see themselves only -> [1, token, head, width]."""
    assert attention_mask is None
    segments = cu_seq_lens_q
    if _takes_varlen(kind, value):
        query, key, value = (tensor[0].transpose(0, 1).to(value.dtype) for tensor in (query, key, value))  # [token, head, width]
        bounds, longest = segments.bounds, segments.longest
        attended: Any = varlen.varlen_attn(query, key, value, bounds, bounds, longest, longest, scale=scaling)
        return attended[None], None
    if segments.padded is not None:
        rows, shape = segments.padded.patches.flatten(), segments.padded.patches.shape
        q, k, v = (tensor[0].index_select(1, rows).unflatten(1, shape).transpose(0, 1) for tensor in (query, key, value))
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=segments.padded.real, scale=scaling)  # [segment, head, longest, width]
        return attended.transpose(1, 2).flatten(0, 1).index_select(0, segments.padded.slots)[None], None
    outputs = []
    start = 0
    for count, length in segments.runs:
        stop = start + count * length
        q, k, v = (tensor[0, :, start:stop].unflatten(1, (count, -1)).transpose(0, 1) for tensor in (query, key, value))
        attended = F.scaled_dot_product_attention(q, k, v, scale=scaling)  # [segment, head, token, width]
        outputs.append(attended.transpose(1, 2).flatten(0, 1))
        start = stop
    return torch.cat(outputs)[None] if len(outputs) > 1 else outputs[0][None], None


def tree_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    tree: TreeAttention,
    *,
    kind: Kind,
    **_: Any,
) -> tuple[Tensor, None]:
    """query [1, head, token, width], key, value [1, key head, token, width] -> [1, token, head, width]."""
    assert attention_mask is None
    if _takes_varlen(kind, value):
        attend, query, key = by_varlen, query.to(value.dtype), key.to(value.dtype)
    else:
        attend = by_blocks
    if tree.record is not None:
        tree.record.append((key, value))
    if tree.root is not None:
        root_key, root_value = tree.root[module.layer_idx]  # ty: ignore[invalid-argument-type]
        key, value = torch.cat([root_key.to(key.dtype), key], dim=2), torch.cat([root_value.to(value.dtype), value], dim=2)
    query, key, value = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    return attend(tree, query, key, value, scaling).index_select(0, tree.order)[None], None


def by_blocks(tree: TreeAttention, query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
    """query, key, value [token, head, width], the cached root's keys and values in front -> the outputs of the blocks in their order
    [query, head, width]. Nodes of one shape in one call of scaled_dot_product_attention.
    """
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
    """As `by_blocks`, all nodes in one call of torch's variable-length flash attention (causal from the lower right)."""
    attended: Any = varlen.varlen_attn(
        query.index_select(0, tree.queries),
        key.index_select(0, tree.keys),
        value.index_select(0, tree.keys),
        tree.query_bounds,
        tree.key_bounds,
        *tree.longest,
        scale=scaling,
        window_size=(-1, 0),
        enable_gqa=True,
    )
    return attended


def _takes_varlen(kind: Kind, value: Tensor) -> bool:
    """value [..., width] comes straight from its linear layer, so it has the precision that is computed in, under autocast too."""
    if kind != "auto":
        return kind == "varlen"
    width = value.shape[-1]
    return value.dtype in (torch.bfloat16, torch.float16) and width % 8 == 0 and width <= LARGEST_HEAD and _has_kernel(value.device)


@lru_cache(maxsize=16)
def _has_kernel(device: torch.device) -> bool:
    """Whether the flash kernel runs on a device. The meta device stands for a GPU, so that a rehearsal takes the way of one."""
    return device.type == "meta" or (device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0))


for _kind in ("auto", "blocks", "varlen"):
    AttentionInterface.register(IMAGES.format(kind=_kind), partial(image_attention, kind=_kind))
    AttentionInterface.register(TREE.format(kind=_kind), partial(tree_attention, kind=_kind))
