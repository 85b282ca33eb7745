"""Attention within images and windows: values and gradients of separate calls, in a number of kernels that no aspect ratio changes."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from test_tree import png, stock
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from reward import RewardModel
from reward.config import BackboneConfig, HeadConfig, PresentationConfig, RewardModelConfig
from reward.inputs.batch import Batch
from reward.inputs.device import on_device
from reward.inputs.vision import VisionSizes, vision_layout
from reward.model.attention import image_attention
from reward.model.backbone import build_backbone, sized_config

GRIDS = {"1:1": (16, 16), "4:3": (24, 18), "2:3": (12, 18)}  # patches; windows are 8 x 8
SIZES = VisionSizes(patch_size=4, merge_size=2, window_size=32)


class Kernels(TorchDispatchMode):
    """Counts dispatched operations by name."""

    def __init__(self) -> None:
        super().__init__()
        self.of: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.of[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


def windowed(family: str = "qwen2_5_vl") -> RewardModel:
    """Three vision blocks, of which two attend in windows of 8 x 8 patches."""
    sizes = {"text_hidden": 32, "text_intermediate": 32, "text_heads": 2, "text_kv_heads": 1, "vision_hidden": 32, "vision_heads": 2}
    backbone = BackboneConfig.model_validate(sizes | {"family": family, "vision_depth": 3, "patch_size": 4, "merge_size": 2})
    config = RewardModelConfig(
        backbone=backbone,
        presentation=PresentationConfig(layout="images", prompt="words", min_image_area=64, image_area=10_000),
        heads=HeadConfig(hidden=(8,)),
    )
    plain = RewardModel.from_config(config, ["make it red"], seed=1)
    if family == "qwen3_vl":
        return plain.eval()
    sized = sized_config(backbone, plain.tokenizer)
    sized.vision_config.fullatt_block_indexes, sized.vision_config.window_size = [1], SIZES.window_size
    torch.manual_seed(1)
    return RewardModel(config=config, backbone=build_backbone(family, sized), tokenizer=plain.tokenizer).eval()


def batch_of(model: RewardModel, *grids: tuple[int, int]) -> Batch:
    source, *edits = [png(number, (columns * 4, rows * 4)) for number, (rows, columns) in enumerate(grids)]
    return model.collate([model.prepare(source=source, candidates=edits, instruction="make it red")])


def separately(query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, scale: float) -> Tensor:
    """[1, token, head, width], one call per segment."""
    ends = bounds.tolist()
    parts = [
        F.scaled_dot_product_attention(*(tensor[:, :, start:stop] for tensor in (query, key, value)), scale=scale)
        for start, stop in pairwise(ends)
    ]
    return torch.cat(parts, dim=2).transpose(1, 2)


@pytest.mark.parametrize("grids", [[(16, 16)] * 2, [(24, 18), (12, 18), (2, 6)]])
def test_windows_of_several_lengths_equal_separate_calls(grids: list[tuple[int, int]]) -> None:
    """Padded windows, their outputs and gradients, beside one call per window."""
    windows = vision_layout(tuple((grid, 1) for grid in grids), SIZES).windows
    assert windows is not None and (windows.padded is None) == (len(set(grids)) == 1)
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(1, 2, int(windows.bounds[-1]), 16, generator=generator).requires_grad_() for _ in range(3)]
    weights = torch.randn(1, int(windows.bounds[-1]), 2, 16, generator=generator)
    found, _ = image_attention(torch.nn.Identity(), *inputs, None, 0.25, windows, kind="auto")
    expected = separately(*inputs, windows.bounds, 0.25)
    assert (found - expected).abs().max() < 1e-6
    for mine, theirs in zip(*(torch.autograd.grad((out * weights).sum(), inputs) for out in (found, expected)), strict=True):
        assert (mine - theirs).abs().max() < 1e-6


def test_a_tower_with_windows_equals_that_of_transformers() -> None:
    model = windowed()
    batch = batch_of(model, GRIDS["4:3"], GRIDS["1:1"], GRIDS["2:3"], (6, 4))
    plain = stock(model)
    assert plain.config.vision_config.fullatt_block_indexes == [1]
    seen: dict[str, Tensor] = {}

    def keep(_: Any, given: tuple[Tensor, ...], output: Any) -> None:
        seen.update(pixels=given[0], features=output.pooler_output)

    model.backbone.visual.register_forward_hook(keep)
    with torch.no_grad():
        model(batch)
        assert batch.vision is not None
        expected = plain.visual(seen["pixels"], grid_thw=batch.vision.grids).pooler_output
    assert (seen["features"] - expected).abs().max() < 1e-5


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
def test_no_aspect_ratio_changes_the_number_of_kernels(family: str) -> None:
    """One attention call per vision block on the CPU; on a GPU, which the meta device stands for, all kernels of a pass are counted."""
    model = windowed(family)
    blocks, layers = model.config.backbone.vision_depth, model.config.backbone.text_layers
    for grid in GRIDS.values():
        batch = batch_of(model, grid, grid, grid)
        with Kernels() as kernels, torch.no_grad():
            model(batch)
        trees = layers * len(batch.attention.shapes)
        assert sum(count for name, count in kernels.of.items() if name.startswith("_scaled_dot_product")) == blocks + trees
    whole = []
    meta = windowed(family).to("meta")
    for parameter in meta.backbone.parameters():
        parameter.data = parameter.data.to(torch.bfloat16)
    for grid in (GRIDS["1:1"], *GRIDS.values()):  # the first pass fills caches
        batch = on_device(batch_of(model, grid, grid, grid), torch.device("meta"))
        with Kernels() as kernels:
            meta(batch).mean.sum().backward()
        whole.append(kernels.of)
    assert whole[1] == whole[2] == whole[3] and whole[1]["_varlen_attn"] == blocks + layers
