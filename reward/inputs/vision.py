"""What a vision tower derives from the sizes of its images: positions, windows, segments of attention, as index tensors made on the CPU.

In: the grids of a batch's images. Out: a VisionLayout, part of the batch, so that the tower itself reads no length back from its device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby

import torch
from torch import Tensor
from transformers.vision_utils import (
    get_vision_cu_seqlens,
    get_vision_interpolation_indices_and_weights,
    get_vision_position_ids,
    get_vision_window_index,
)

from reward.inputs.tree import Grid


@dataclass(frozen=True)
class VisionSizes:
    """Sizes of a vision tower. window_size: side in pixels of the windows of its attention, None when all blocks attend to whole images;
    position_grid: side of its table of learned positions, None when it has none.
    """

    patch_size: int
    merge_size: int
    window_size: int | None = None
    position_grid: int | None = None


@dataclass(frozen=True)
class PaddedSegments:
    """Segments as rows of the longest one's length.

    patches [segment, longest]: numbers of a row's patches, after the segment's end its first one again; real, bool
    [segment, 1, 1, longest]: which of them belong to it; slots [patch]: where each patch is in the rows.
    """

    patches: Tensor
    real: Tensor
    slots: Tensor


@dataclass(frozen=True)
class Segments:
    """Neighbouring patches that see only each other: whole images, or windows of them.

    bounds, int32 [segment + 1]: where segments begin, and the end of the last; runs: (number, length) of neighbours of one length; padded:
    for windows of several lengths.
    """

    bounds: Tensor
    longest: int
    runs: tuple[tuple[int, int], ...]
    padded: PaddedSegments | None = None


@dataclass(frozen=True)
class VisionLayout:
    """Inputs of a vision tower beside the pixels, for the images of a batch.

    grids [item, 3]: frames (1), rows and columns of patches; positions [patch, 2]: row and column; images: a segment per image;
    windows and window_order [patch / merge_size^2]: for towers with windows, their segments and the order that puts them in a row;
    neighbours, weights [patch, 4]: for towers with learned positions, entries of their table and what each counts.
    """

    grids: Tensor
    positions: Tensor
    images: Segments
    windows: Segments | None = None
    window_order: Tensor | None = None
    neighbours: Tensor | None = None
    weights: Tensor | None = None


@lru_cache(maxsize=32)
def vision_layout(runs: Sequence[tuple[Grid, int]], sizes: VisionSizes) -> VisionLayout:
    """The layout of runs of (grid, number of images). Kept, since batches repeat their shapes."""
    grids = torch.tensor([[1, *grid] for grid, count in runs for _ in range(count)])
    layout = VisionLayout(
        grids=grids,
        positions=get_vision_position_ids(grids, sizes.merge_size),
        images=_segments(get_vision_cu_seqlens(grids), pad=False),
    )
    if sizes.window_size is not None:
        order, bounds = get_vision_window_index(grids, sizes.merge_size, sizes.window_size, sizes.patch_size)
        layout = replace(layout, window_order=order, windows=_segments(bounds, pad=True))
    if sizes.position_grid is not None:
        neighbours, weights = get_vision_interpolation_indices_and_weights(
            grids, sizes.position_grid, mode="bilinear", align_corners=True, spatial_merge_size=sizes.merge_size
        )
        layout = replace(layout, neighbours=neighbours, weights=weights)
    return layout


def _segments(bounds: Tensor, *, pad: bool) -> Segments:
    """pad: segments of several lengths get padded rows, since an image's windows have up to four lengths in a mixed order."""
    lengths = bounds.diff().long()  # [segment]
    runs = tuple((len(list(run)), length) for length, run in groupby(lengths.tolist()))
    longest = max(length for _, length in runs)
    if not pad or len(runs) == 1:
        return Segments(bounds, longest, runs)
    numbers = torch.arange(longest)
    real = numbers < lengths[:, None]  # [segment, longest]
    patches = torch.where(real, bounds[:-1, None] + numbers, bounds[:-1, None].long())
    return Segments(bounds, longest, runs, PaddedSegments(patches, real[:, None, None], real.flatten().nonzero()[:, 0]))
