"""Released weights of Step1X-Edit v1.0 into modules and back.

A file is checked by names and shapes before anything is read. Then each parameter is read for itself, by its rows, so loading needs the
memory of the weights once, and with sharded weights a worker reads its own rows only.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from finetune.step1x.checkpoint_names import Piece, pieces
from finetune.step1x.config import Step1XConfig
from finetune.step1x.versions import check_folder, check_names
from reward.trainer.sharding import ReadRows

_SHOWN = 3  # names in an error message


def stored_rows(config: Step1XConfig, model: nn.Module) -> dict[str, ReadRows]:
    """By parameter name, what reads its rows from the released file.

    ValueError when the file is missing or unreadable, or when its tensors are not those of a v1.0 of the configured sizes.
    """
    check_folder(Path(config.directory))
    path, wanted = denoiser_path(config), pieces(model)
    try:
        file: Any = safe_open(path, framework="pt")
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{path} is not a readable safetensors file ({error}); expected the released denoiser of Step1X-Edit") from error
    check_names(path, slices)
    _check(path, {name: tuple(part.get_shape()) for name, part in slices.items()}, _released_shapes(model, wanted))
    return {name: _reader(parts, slices) for name, parts in wanted.items()}


def denoiser_path(config: Step1XConfig) -> Path:
    """The file of denoiser and connector."""
    return Path(config.directory) / config.denoiser


def export_weights(model: nn.Module, path: Path, *, metadata: dict[str, str] | None = None, dtype: torch.dtype | None = None) -> None:
    """Write a model as the released file has it; a loaded one gives the same bytes as the file, given that file's metadata."""
    parameters = dict(model.named_parameters())
    parts: dict[str, list[tuple[int, Tensor]]] = {}
    for name, wanted in pieces(model).items():
        weight, first = parameters[name].detach(), 0
        for piece in wanted:
            count = len(weight) - first if piece.last is None else piece.last - piece.first
            parts.setdefault(piece.name, []).append((piece.first, weight[first : first + count]))
            first += count
    released = {name: torch.cat([part for _, part in sorted(found, key=lambda one: one[0])]) for name, found in parts.items()}
    save_file({name: weight.to("cpu", dtype).contiguous() for name, weight in released.items()}, path, metadata=metadata)


def _reader(parts: tuple[Piece, ...], slices: Mapping[str, Any]) -> ReadRows:
    def read(first: int, last: int) -> Tensor:
        found, start = [], 0
        for part in parts:
            stored = slices[part.name]
            end = stored.get_shape()[0] if part.last is None else part.last
            low, high = max(first - start, 0), min(last - start, end - part.first)
            if low < high:
                found.append(stored[part.first + low : part.first + high])
            start += end - part.first
        return torch.cat(found) if found else slices[parts[0].name][:1][:0]  # a worker may have no rows of a small weight

    return read


def _released_shapes(model: nn.Module, wanted: Mapping[str, tuple[Piece, ...]]) -> dict[str, tuple[int, ...]]:
    parameters = dict(model.named_parameters())
    assert parameters.keys() == wanted.keys()
    shapes: dict[str, tuple[int, ...]] = {}
    for name, parts in wanted.items():
        rows, *others = parameters[name].shape
        for part in parts:
            last = rows if part.last is None else part.last
            shapes[part.name] = (max(last, shapes.get(part.name, (0,))[0]), *others)
    return shapes


def _check(path: Path, found: Mapping[str, tuple[int, ...]], expected: Mapping[str, tuple[int, ...]]) -> None:
    missing, unknown = sorted(expected.keys() - found.keys()), sorted(found.keys() - expected.keys())
    if missing or unknown:
        differences = [
            f"{what} {', '.join(names[:_SHOWN])}{' and others' if len(names) > _SHOWN else ''}"
            for what, names in (("it lacks", missing), ("it has besides", unknown))
            if names
        ]
        raise ValueError(f"{path} is not Step1X-Edit v1.0 of the configured sizes: {'; '.join(differences)} ({len(found)} tensors)")
    different = sorted(name for name in expected if found[name] != expected[name])
    if different:
        name = different[0]
        raise ValueError(
            f"{path}: {name} is {list(found[name])}, the configured sizes need {list(expected[name])} ({len(different)} tensors differ); "
            "set sizes as the file has them"
        )
