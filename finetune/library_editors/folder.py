"""A folder in diffusers' layout: its parts, its configuration, and the transformer's weights, read by rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from finetune import complete_folder
from finetune.library_editors.config import LibraryEditorConfig
from finetune.loaded_weights import check_loaded
from reward.trainer.sharding import ReadRows

_PART = "transformer"
_INDEX, _SINGLE = "diffusion_pytorch_model.safetensors.index.json", "diffusion_pytorch_model.safetensors"


def settings(config: LibraryEditorConfig, part: str) -> dict[str, Any]:
    """The configuration of a part of the folder. ValueError when it is missing or damaged."""
    path = Path(config.directory) / part / ("scheduler_config.json" if part == "scheduler" else "config.json")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is not readable ({error}); expected the folder of a diffusers pipeline") from error


def check_pipeline_folder(pipeline: Any, config: LibraryEditorConfig) -> None:
    """ValueError naming the file that is missing or damaged, or the other pipeline; the transformer is looked at by `stored_rows`."""
    complete_folder.check_pipeline(Path(config.directory), pipeline.__name__, without={_PART})


def open_pipeline(pipeline: Any, config: LibraryEditorConfig) -> Any:
    """The pipeline without its transformer, in bf16. ValueError when the folder is not readable, or lacks files or weights."""
    check_pipeline_folder(pipeline, config)
    try:
        opened = pipeline.from_pretrained(config.directory, transformer=None, scheduler=None, dtype=torch.bfloat16, use_safetensors=True)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, SafetensorError) as error:
        raise ValueError(f"{config.directory} is no readable folder of {pipeline.__name__} ({str(error).splitlines()[0]})") from error
    for name, part in opened.components.items():
        if isinstance(part, nn.Module):
            check_loaded(part, Path(config.directory) / name)
    return opened


def open_part(part: Any, config: LibraryEditorConfig, name: str) -> Any:
    """One model of the folder, in bf16. ValueError when it is not readable."""
    try:
        return part.from_pretrained(config.directory, subfolder=name, dtype=torch.bfloat16, use_safetensors=True)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise ValueError(f"{config.directory}/{name} is not readable ({str(error).splitlines()[0]}); download it again") from error


def weight_files(config: LibraryEditorConfig) -> list[Path]:
    """Files with the transformer's weights. ValueError when there are none."""
    if config.denoiser is not None:
        return [Path(config.directory) / config.denoiser]
    folder = Path(config.directory) / _PART
    try:
        names = set(json.loads((folder / _INDEX).read_text(encoding="utf-8"))["weight_map"].values())
    except FileNotFoundError:
        names = {_SINGLE}
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{folder / _INDEX} is damaged ({error}); download it again") from error
    return [folder / name for name in sorted(names)]


def stored_rows(config: LibraryEditorConfig, model: nn.Module) -> dict[str, ReadRows]:
    """By parameter name, what reads its rows. ValueError when names or shapes are not those of the folder's configuration."""
    found: dict[str, Any] = {}
    for path in weight_files(config):
        try:
            file: Any = safe_open(path, framework="pt")
            found |= {f"{_PART}.{name}": file.get_slice(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise ValueError(f"{path} is not a readable safetensors file ({error}); download it again") from error
    shapes = {name: tuple(part.get_shape()) for name, part in found.items()}
    expected = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    different = sorted(name for name in shapes.keys() | expected.keys() if shapes.get(name) != expected.get(name))
    if different:
        name = different[0]
        raise ValueError(
            f"{config.denoiser or config.directory}: {name} is {shapes.get(name)}, transformer/config.json needs {expected.get(name)} "
            f"({len(different)} tensors differ); use weights of this model"
        )
    return {name: _reader(found[name]) for name in expected}


def export_weights(model: nn.Module, path: Path) -> None:
    """Write the transformer's weights as one file, with the library's names."""
    tensors = {name.removeprefix(f"{_PART}."): parameter.detach() for name, parameter in model.named_parameters()}
    save_file({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, path, metadata={"format": "pt"})


def encoder_files(config: LibraryEditorConfig) -> dict[str, Path]:
    """Files that the encoders' results depend on: all but the transformer's and the scheduler's, and what is no model."""
    folder = Path(config.directory)
    kept = (path for path in folder.glob("*/*") if path.suffix in (".json", ".safetensors", ".txt", ".model", ".jinja"))
    files = {path.relative_to(folder).as_posix(): path for path in kept if path.parent.name not in (_PART, "scheduler")}
    if not any(name.startswith("vae/") for name in files):
        raise ValueError(f"{folder} contains no VAE; expected the folder of a diffusers pipeline")
    return files


def _reader(stored: Any) -> ReadRows:
    def read(first: int, last: int) -> Tensor:
        return stored[first:last] if last > first else stored[:1][:0]

    return read


def shifted_by_tokens(schedule: Mapping[str, Any], tokens: int) -> float:
    """e^mu of a scheduler's configuration, with mu linear in the number of target tokens."""
    low, high = schedule.get("base_image_seq_len", 256), schedule.get("max_image_seq_len", 4096)
    start, end = schedule.get("base_shift", 0.5), schedule.get("max_shift", 1.15)
    return float(torch.exp(torch.tensor(start + (end - start) * (tokens - low) / (high - low), dtype=torch.float64)))
