"""Attention within segments of one long row: many small images in one call.

Transformers' vision tower attends image by image in a Python loop unless a variable-length kernel is asked for. Here images of one
size, which follow each other, become the batch of a single scaled_dot_product_attention call; values and gradients are those of the loop.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface

NAME = "segments_flash"
"""Registered name; transformers passes the segments' bounds to implementations whose name contains "flash"."""


def segment_attention(
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


AttentionInterface.register(NAME, segment_attention)
