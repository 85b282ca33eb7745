"""Files of weights, read tensor by tensor or by rows: names and shapes are known before anything is read, and no file is in memory as a
whole.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled
from safetensors import SafetensorError, safe_open
from torch import Tensor

SETTINGS = ("*.json", "*.txt", "*.jinja")
"""Files of a published model with its configuration and tokenizer."""
PUBLISHED = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
"""Where a published model's weights are, best first: in one file, or in those that an index names."""


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a file. rows(first, last): its rows, read anew at each call."""

    shape: tuple[int, ...]
    rows: Callable[[int, int], Tensor]

    def read(self) -> Tensor:
        """All of it."""
        return self.rows(0, self.shape[0])


def located(name: str | Path, revision: str | None, *, only: Sequence[str] | None = None) -> Path:
    """A local directory as it is; a Hub id downloaded, all of it or the files of these patterns. Raises ValueError."""
    path = Path(name)
    if path.exists() or isinstance(name, Path) or name.count("/") != 1:
        return path
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=None if only is None else [*only]))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled) as error:
        raise ValueError(f"{name} is neither a directory nor a model that can be fetched from the Hub ({error})") from error


def model_type(file: Path) -> str:
    """The family that a config.json names. Raises ValueError."""
    try:
        return str(json.loads(file.read_text(encoding="utf-8"))["model_type"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file} is no configuration of a model ({error!r}); copy or download it again") from None


def published_tensors(folder: Path) -> dict[str, StoredTensor]:
    """The tensors of a published model by the names that its files give them. Raises ValueError for files that are missing or damaged."""
    first = next((folder / name for name in PUBLISHED if (folder / name).exists()), None)
    if first is None:
        raise ValueError(f"{folder} has no weights (none of {', '.join(PUBLISHED)}); name a directory of pretrained weights, or a Hub id")
    if first.suffix != ".json":
        return stored_tensors(first)
    try:
        files = json.loads(first.read_bytes())["weight_map"]
        parts = sorted(set(files.values()))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{first} is no index of weights ({error!r}); copy or download it again") from None
    missing = [name for name in parts if not (folder / name).exists()]
    if missing:
        raise ValueError(f"{folder} lacks {missing[0]}, one of {len(parts)} files of weights that {first.name} names; download it again")
    found = {name: tensor for part in parts for name, tensor in stored_tensors(folder / part).items()}
    lost = sorted(files.keys() - found.keys())
    if lost:
        raise ValueError(f"{folder / files[lost[0]]} lacks {lost[0]}, which {first.name} names; download it again")
    return found


def stored_tensors(file: Path) -> dict[str, StoredTensor]:
    """The tensors of a .safetensors file, or of a pickled dict of plain tensors (nothing else in it is executed).

    Raises ValueError for a damaged file; reading a tensor later does for one that has NaN, infinity, or numbers that are no plain floats.
    """
    try:
        if file.suffix == ".safetensors":
            opened = safe_open(file, framework="pt", backend="pread")  # mapped pages would count beside the model
            found = {name: opened.get_slice(name) for name in opened.offset_keys()}
            shapes = {name: tuple(part.get_shape()) for name, part in found.items()}
        else:
            pickled = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
            found = {name: part for name, part in pickled.items() if isinstance(part, Tensor)} if isinstance(pickled, dict) else {}
            shapes = {name: tuple(part.shape) for name, part in found.items()}
    except (OSError, SafetensorError, pickle.UnpicklingError, RuntimeError) as error:
        said = str(error).strip().split("\n")[0]
        raise ValueError(f"{file} cannot be read as a file of weights ({said}); train, copy or download it again") from error
    return {name: StoredTensor(shape, partial(_rows, file, name, found[name], shape)) for name, shape in shapes.items()}


def _rows(file: Path, name: str, stored: Any, shape: tuple[int, ...], first: int, last: int) -> Tensor:
    """Rows of a tensor of a file, checked. stored: anything that slices read from."""
    if first == last:  # safetensors has no empty slices
        return stored[0:1][:0]
    if file.suffix == ".safetensors" and (first, last) != (0, shape[0]):
        with safe_open(file, framework="pt") as mapped:  # reads these rows only, where `pread` reads all of the tensor
            rows = mapped.get_slice(name)[first:last]
    else:
        rows = stored[first:last]
    if rows.dtype not in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        raise ValueError(f"{file} has {name} as {str(rows.dtype).removeprefix('torch.')}; expected weights that are not quantised")
    if not torch.stack(rows.aminmax()).isfinite().all():
        raise ValueError(f"{file} contains NaN or infinity in {name}; train or copy it again")
    return rows
