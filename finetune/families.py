"""The families of pretrained editors: how their halves are opened, and how the trained half is written.

The frozen half is opened where pairs are encoded and edits are sampled, the trained half where it trains. Nothing is loaded to tell the
identity of either. A configuration is that of `finetune.library_editors.config.PretrainedEditorConfig`.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from torch import nn

from finetune.editing_model import Encoders
from finetune.library_editors import weights as library
from finetune.library_editors.config import KontextConfig, PretrainedEditorConfig
from finetune.library_editors.kontext import Kontext, KontextEncoders
from finetune.library_editors.qwen_image_edit import QwenImageEdit, QwenImageEditEncoders
from finetune.step1x import encoders as step1x
from finetune.step1x import loading
from finetune.step1x.config import Step1XConfig
from reward.trainer.sharding import ReadRows


def open_encoders(config: PretrainedEditorConfig, device: torch.device) -> Encoders:
    """The frozen half. ValueError naming the file that is missing or unreadable."""
    if isinstance(config, Step1XConfig):
        return step1x.Step1XEncoders.load(config, device)
    return (KontextEncoders if isinstance(config, KontextConfig) else QwenImageEditEncoders).load(config, device)  # ty: ignore[invalid-argument-type]


def encoders_identity(config: PretrainedEditorConfig) -> str:
    """Hash of everything that the encoders' results depend on. ValueError naming a file that is missing."""
    if isinstance(config, Step1XConfig):
        return step1x.identity(config)
    depends = config.model_dump_json(exclude={"directory", "denoiser", "sampling"})
    return hashlib.sha256((depends + library.files_identity(library.encoder_files(config))).encode()).hexdigest()


def model_identity(config: PretrainedEditorConfig) -> str:
    """Hash of the trained half's files. ValueError naming a file that is missing."""
    files = [loading.denoiser_path(config)] if isinstance(config, Step1XConfig) else library.weight_files(config)
    return library.files_identity({str(number): path for number, path in enumerate(files)})


def without_weights(config: PretrainedEditorConfig) -> nn.Module:
    """The trained half, an `EditingModel`, on torch's meta device."""
    with torch.device("meta"):
        if isinstance(config, Step1XConfig):
            return loading.without_weights(config)
        return Kontext(config) if isinstance(config, KontextConfig) else QwenImageEdit(config)


def stored_rows(config: PretrainedEditorConfig, model: nn.Module) -> dict[str, ReadRows]:
    """By parameter name, what reads its rows from the files. ValueError when they are missing or another model's."""
    return (loading if isinstance(config, Step1XConfig) else library).stored_rows(config, model)  # ty: ignore[invalid-argument-type]


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
    exporter: Any = loading if isinstance(config, Step1XConfig) else library
    exporter.export_weights(model, path)


def with_weights(config: PretrainedEditorConfig, path: Path) -> PretrainedEditorConfig:
    """The editor with the trained half of another file."""
    return config.model_copy(update={"denoiser": str(path.absolute())})
