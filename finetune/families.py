"""The families of pretrained editors: how their halves are opened, and how the trained half is written.

The frozen half is opened where pairs are encoded and edits are sampled, the trained half where it trains. Nothing is loaded to tell the
identity of either. To add a family, write a module with the functions that are called here, and name it in `_family`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import nn

from finetune.editing_model import Decoder, Encoders, ExampleInput
from finetune.library_editors import kontext, qwen_image_edit
from finetune.library_editors.config import KontextConfig, PretrainedEditorConfig, QwenImageEditConfig
from finetune.step1x import family as step1x
from finetune.step1x.config import Step1XConfig
from reward.trainer.sharding import ReadRows


def open_encoders(config: PretrainedEditorConfig, device: torch.device) -> Encoders:
    """The frozen half. ValueError naming the folder, where a file is missing, damaged or of another model, and where the installed
    versions would condition otherwise than in the weights' training."""
    try:
        encoders = _family(config).open_encoders(config, device)
        _check_fits(config, encoders)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # of damaged files the libraries raise anything
        raise ValueError(f"the encoders in {config.directory} cannot be used: {str(error).strip() or type(error).__name__}") from error
    return encoders


def open_decoder(config: PretrainedEditorConfig, device: torch.device) -> Decoder:
    """From latents [n, channels, rows, columns] to RGB images, without the rest of the encoders. ValueError as of `open_encoders`."""
    return _family(config).open_decoder(config, device)


def encoders_identity(config: PretrainedEditorConfig) -> str:
    """Hash of everything that the encoders' results depend on. ValueError naming a file that is missing."""
    settings = config.model_dump_json(exclude={"directory", "denoiser", "vae", "vlm", "sampling"})
    return hashlib.sha256((settings + _hash(_family(config).encoder_files(config))).encode()).hexdigest()


def model_identity(config: PretrainedEditorConfig) -> str:
    """Hash of the trained half's files. ValueError naming a file that is missing."""
    return _hash({str(number): path for number, path in enumerate(_family(config).weight_files(config))})


def without_weights(config: PretrainedEditorConfig) -> nn.Module:
    """The trained half, an `EditingModel`, on torch's meta device."""
    with torch.device("meta"):
        return _family(config).new_model(config)


def stored_rows(config: PretrainedEditorConfig, model: nn.Module) -> dict[str, ReadRows]:
    """By parameter name, what reads its rows from the files. ValueError when they are missing or another model's."""
    return _family(config).stored_rows(config, model)


def check_weights(config: PretrainedEditorConfig) -> None:
    """ValueError when the trained half's files are missing or another model's. Names and shapes are read, no weights."""
    stored_rows(config, without_weights(config))


def check_files(config: PretrainedEditorConfig) -> None:
    """ValueError for a file of either half that is missing or damaged, and for weights of another model. No weights are read."""
    family = _family(config)
    family.check_folder(config)
    for path in (*family.encoder_files(config).values(), *family.weight_files(config)):
        if not path.is_file():
            raise ValueError(f"there is no file {path}; expected a file of the editor {config.family}")
    check_weights(config)


def open_model(config: PretrainedEditorConfig, device: torch.device, dtype: torch.dtype | None = None) -> nn.Module:
    """The trained half with its weights, read one by one; dtype None: each weight's own."""
    model = without_weights(config)
    for name, read in stored_rows(config, model).items():
        owner, _, leaf = name.rpartition(".")
        weight = read(0, len(model.get_parameter(name))).to(device, dtype)
        setattr(model.get_submodule(owner), leaf, nn.Parameter(weight))
    assert not any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers()))
    return model


def export_weights(config: PretrainedEditorConfig, model: nn.Module, path: Path) -> None:
    """Write the trained half as the family's released file, or as a file with the library's names."""
    _family(config).export_weights(model, path)


def with_weights(config: PretrainedEditorConfig, path: Path) -> PretrainedEditorConfig:
    """The editor with the trained half of another file."""
    return config.model_copy(update={"denoiser": str(path.absolute())})


def example_input(config: PretrainedEditorConfig, side: int, device: torch.device) -> ExampleInput:
    """What a square pair of side x side pixels with an instruction of usual length is to the model."""
    return _family(config).example_input(config, side, device)


def _check_fits(config: PretrainedEditorConfig, encoders: Encoders) -> None:
    """A wrong encoder would otherwise be noticed when all pairs are encoded and the training begins."""
    example = example_input(config, config.sampling.side, torch.device("meta"))
    blank = Image.new("RGB", encoders.working_size(64, 64, 64))
    (moments,), condition = encoders.encode_images([blank]), encoders.encode_condition(blank, "")
    widths = {name: (tensor.shape[-1], example.condition[name].shape[-1]) for name, tensor in condition.items()}
    for name, (found, wanted) in {"latents": (len(moments.mean), example.latent[0]), **widths}.items():
        if found != wanted:
            raise ValueError(f"they give {name} of width {found}, and the denoiser takes {wanted}; use those of {config.family}")


def _family(config: PretrainedEditorConfig) -> Any:
    modules: dict[type, Any] = {Step1XConfig: step1x, KontextConfig: kontext, QwenImageEditConfig: qwen_image_edit}
    return modules[type(config)]


def _hash(files: Mapping[str, Path]) -> str:
    lines = "".join(f"{name} {file_hash(path)}\n" for name, path in sorted(files.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def file_hash(path: Path) -> str:
    """SHA-256 of a file of an editor, read once by a process while its size and time stay. ValueError when it is not readable."""
    try:
        found = path.stat()
        return _content_hash(path, found.st_size, found.st_mtime_ns)
    except OSError as error:
        raise ValueError(f"{path} is not readable ({error}); expected a file of the editor") from error


@lru_cache(maxsize=256)
def _content_hash(path: Path, size: int, time: int) -> str:
    """Arms share the files of their base: tens of GB that are hashed for each of them otherwise."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
