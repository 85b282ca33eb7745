"""A pipeline, loaded and placed: precision, device, offloading, attention backend, compiled blocks."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import diffusers
import torch
from torch import nn

from finetune.loaded_weights import check_loaded
from stages.editors.native import weights
from stages.editors.native.model import NativeModel, Pipeline
from stages.editors.native.settings import NativeSettings

Offload = Literal["none", "model", "layers"]
OFFLOADS: tuple[Offload, ...] = ("none", "model", "layers")
"""From the fastest to the one that needs the least memory of the GPU; images are the same."""
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
ACTIVATIONS = 8 * 2**30
"""Bytes kept free beside the weights: those of one megapixel, roughly."""


@dataclass(frozen=True)
class Loaded:
    """``pipeline`` is the class that the weights name, whose encoders are used; ``denoiser`` is called."""

    pipeline: Pipeline
    denoiser: Pipeline
    attention: str
    compiled: bool
    offload: Offload


def load(model: NativeModel, folder: Path, settings: NativeSettings, offload: Offload | None = None) -> Loaded:
    """Load the weights of a directory. ``offload`` takes the place of the settings'. Raises ``ValueError`` naming the editor and why."""
    weights.check(model.name, folder, model.family.pipeline)
    try:
        pipeline = getattr(diffusers, model.family.pipeline).from_pretrained(
            folder, dtype=DTYPES[settings.dtype], local_files_only=True, use_safetensors=True
        )
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # missing and broken files, missing packages
        raise ValueError(f"{model.name}: {folder} cannot be loaded: {weights.first_line(error)}") from error
    for name, part in pipeline.components.items():
        if isinstance(part, nn.Module):
            try:
                check_loaded(part, folder / name)
            except ValueError as error:
                raise ValueError(f"{model.name}: {error}") from None
    gpu = torch.cuda.is_available()
    attention = _set_attention(model.name, pipeline, settings, gpu)
    chosen = _place(model.name, pipeline, offload or settings.offload, gpu)
    compiled = settings.compile == "regional" or (settings.compile == "auto" and gpu and find_spec("triton") is not None)
    compiled = compiled and chosen != "layers"  # whose hooks lie inside the blocks
    if compiled:
        pipeline.transformer.compile_repeated_blocks()
    denoiser = model.family.denoiser(pipeline)
    denoiser.set_progress_bar_config(disable=True)
    return Loaded(pipeline, denoiser, attention, compiled, chosen)


def free() -> None:
    """Give memory that nobody refers to back to the GPU."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _set_attention(editor: str, pipeline: Pipeline, settings: NativeSettings, gpu: bool) -> str:
    name: str = settings.attention
    if name == "auto":
        half = gpu and settings.dtype == "bf16"  # FlashAttention computes in half precision only
        installed = (backend for module, backend in (("flash_attn_interface", "_flash_3"), ("flash_attn", "flash")) if find_spec(module))
        name = next(installed, "native") if half else "native"
    try:
        pipeline.transformer.set_attention_backend(name)
    except (RuntimeError, ValueError, ImportError) as error:  # packages and kinds of GPU that the backend needs
        raise ValueError(f"{editor}: settings.attention: {name} cannot be used here: {weights.first_line(error)}") from error
    return name


def _place(editor: str, pipeline: Pipeline, offload: Offload | Literal["auto"], gpu: bool) -> Offload:
    if not gpu:
        if offload not in ("auto", "none"):
            raise ValueError(f"{editor}: settings.offload: {offload} frees memory of a GPU, and there is none")
        return "none"
    if offload == "auto":
        offload = _least(pipeline)
    if offload == "none":
        pipeline.to("cuda")
    elif offload == "model":
        pipeline.enable_model_cpu_offload(device="cuda")
    else:
        pipeline.enable_group_offload(torch.device("cuda"), offload_type="leaf_level", use_stream=True)
    return offload


def _least(pipeline: Pipeline) -> Offload:
    """The least offloading with which weights and activations fit into the memory of the GPU that is free."""
    room = torch.cuda.mem_get_info()[0] - ACTIVATIONS
    sizes = [_bytes(part) for part in pipeline.components.values() if isinstance(part, nn.Module)]
    if sum(sizes) <= room:
        return "none"
    return "model" if max(sizes) <= room else "layers"


def _bytes(part: nn.Module) -> int:
    return sum(parameter.nbytes for parameter in part.parameters())
