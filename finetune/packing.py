"""Latent grids as sequences of tokens: FLUX's packing of 2 x 2 latents, and rotary positions of a grid."""

from __future__ import annotations

import torch
from torch import Tensor


def pack(latents: Tensor) -> Tensor:
    """Tokens [n, rows / 2 * columns / 2, 4 * channels] of latents [n, channels, rows, columns]; a token is channel by channel."""
    n, channels, rows, columns = latents.shape
    cells = latents.view(n, channels, rows // 2, 2, columns // 2, 2)
    return cells.permute(0, 2, 4, 1, 3, 5).reshape(n, rows // 2 * (columns // 2), 4 * channels)


def unpack(tokens: Tensor, rows: int, columns: int) -> Tensor:
    """Latents [n, channels, rows, columns] of tokens; the inverse of `pack`."""
    n, _, width = tokens.shape
    cells = tokens.view(n, rows // 2, columns // 2, width // 4, 2, 2)
    return cells.permute(0, 3, 1, 4, 2, 5).reshape(n, width // 4, rows, columns)


def grid_positions(rows: int, columns: int, device: torch.device, *, image: int = 0) -> Tensor:
    """Positions (image, row, column) [rows * columns, 3] of a grid of tokens, row by row, float32."""
    row, column = torch.meshgrid(torch.arange(rows, device=device), torch.arange(columns, device=device), indexing="ij")
    return torch.stack([torch.full_like(row, image), row, column], dim=-1).reshape(-1, 3).float()
