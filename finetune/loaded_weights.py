"""Whether the matrices in memory are those of the files. Libraries that do not find a tensor draw a random one, and only log it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import safe_open
from torch import nn

from finetune.tested_versions import INSTALL

HEAD = 16
"""Numbers of a matrix that are compared, the first ones. Names are not: libraries rename tensors while loading."""

Head = tuple[tuple[int, ...], tuple[float, ...]]


def check_loaded(part: nn.Module, folder: Path) -> None:
    """Raise ``ValueError`` where matrices of a part are not those of the folder's files."""
    lost = missing_matrices(part, folder)
    if lost:
        raise ValueError(
            f"{len(lost)} matrices, {lost[0]} first, are not those of the files in {folder}; download the weights again, or {INSTALL}"
        )


def missing_matrices(part: nn.Module, folder: Path) -> list[str]:
    """Names of the part's matrices whose shape is in the folder's files, and whose first numbers are not; in bf16."""
    files = sorted(folder.glob("*.safetensors"))
    stored = {head for file in files for head in _heads(file)}
    shapes = {shape for shape, _ in stored}
    matrices = ((name, parameter) for name, parameter in part.named_parameters() if parameter.ndim >= 2)
    return [name for name, matrix in matrices if tuple(matrix.shape) in shapes and _head(matrix.shape, matrix[0]) not in stored]


def _heads(file: Path) -> Iterator[Head]:
    with safe_open(file, framework="pt") as tensors:
        for name in tensors.keys():  # noqa: SIM118 - the file is no mapping
            part = tensors.get_slice(name)
            if len(part.get_shape()) >= 2:
                yield _head(part.get_shape(), part[0:1])


def _head(shape: torch.Size | list[int], values: torch.Tensor) -> Head:
    return tuple(shape), tuple(values.detach().flatten()[:HEAD].to(torch.bfloat16).tolist())
