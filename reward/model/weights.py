"""Files of weights, read tensor by tensor: names and shapes are known before anything is read, and no file is in memory as a whole."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a file; `read` reads it anew at each call."""

    shape: tuple[int, ...]
    read: Callable[[], Tensor]


def stored_tensors(file: Path) -> dict[str, StoredTensor]:
    """The tensors of a .safetensors file, or of a pickled dict of plain tensors (nothing else in it is executed). Raises ValueError."""
    try:
        if file.suffix == ".safetensors":
            opened = safe_open(file, framework="pt", backend="pread")  # mapped pages would count beside the model
            return {name: StoredTensor(tuple(part.get_shape()), partial(opened.get_tensor, name)) for name, part in _slices(opened)}
        pickled = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except (OSError, SafetensorError, pickle.UnpicklingError, RuntimeError) as error:
        raise ValueError(f"{file} cannot be read as a file of weights ({error}); train, copy or download it again") from error
    found = pickled.items() if isinstance(pickled, dict) else ()
    return {name: StoredTensor(tuple(tensor.shape), lambda of=tensor: of) for name, tensor in found if isinstance(tensor, Tensor)}


def _slices(opened: Any) -> list[tuple[str, Any]]:
    """Names and handles of the tensors, in the order of the file."""
    return [(name, opened.get_slice(name)) for name in opened.offset_keys()]
