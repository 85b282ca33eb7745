"""Trained editors on disk: a folder with `editor.json` and the weights that training changed.

The base has no weights of its own. An arm with adapters has what learnt, in float32, and for other programs its adapters in published
layouts, in bf16. An arm that learnt in full has the family's own file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import torch
from pydantic import TypeAdapter
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from finetune import families
from finetune.adapter_files import save_diffusers, save_kohya
from finetune.library_editors.config import PretrainedEditorConfig
from finetune.training.config import LargeTrainingConfig
from finetune.training.train import ready_to_learn

_EDITOR: TypeAdapter[PretrainedEditorConfig] = TypeAdapter(PretrainedEditorConfig)
_RECORD, _LEARNT, _WHOLE = "editor.json", "learnt.safetensors", "weights.safetensors"
LORA_DIFFUSERS, LORA_KOHYA = "lora-diffusers.safetensors", "lora-kohya.safetensors"


def save_base(folder: Path, editor: PretrainedEditorConfig, identity: str) -> None:
    """Write the editor before any training: where its files are."""
    _write_record(folder, editor, identity, None)


def save_trained(folder: Path, editor: PretrainedEditorConfig, identity: str, training: LargeTrainingConfig, model: nn.Module) -> None:
    """Write a trained model: its adapters and what else learnt beside them, or all weights."""
    _write_record(folder, editor, identity, training)
    if training.adapters is None:
        families.export_weights(editor, model, folder / _WHOLE)
    else:
        save_file(_learnt(model), folder / _LEARNT, metadata={"format": "pt"})
        save_diffusers(model, folder / LORA_DIFFUSERS, torch.bfloat16)
        if cast(Any, model).fused_projections:
            save_kohya(model, folder / LORA_KOHYA, torch.bfloat16)


def open_trained(folder: Path, device: torch.device, dtype: torch.dtype) -> tuple[PretrainedEditorConfig, nn.Module]:
    """The configuration and the trained half of what `save_base` or `save_trained` wrote.

    ValueError when a file is missing or damaged, or when the base's file is another than the one that was trained.
    """
    editor, base, training = _read(folder)
    if _learnt_in_full(training):
        return editor, families.open_model(families.with_weights(editor, folder / _WHOLE), device, dtype)
    if families.model_identity(editor) != base:
        raise ValueError(f"{folder} was trained from other weights than {editor.directory} has now; restore them, or train again")
    model = families.open_model(editor, device, dtype)
    if training is not None:
        ready_to_learn(model, training, device)
        try:
            learnt = load_file(folder / _LEARNT)
        except (OSError, SafetensorError) as error:
            raise ValueError(f"{folder / _LEARNT} is not readable ({error}); train the editor again") from error
        unknown = model.load_state_dict(learnt, strict=False).unexpected_keys
        if unknown:
            raise ValueError(f"{folder / _LEARNT} has weights that the editor does not have, such as {unknown[0]}; train it again")
    return editor, model.to(device).eval()


def is_pretrained(folder: Path) -> bool:
    """Whether the folder has a pretrained editor, rather than the toy data set's small one."""
    return (folder / _RECORD).is_file()


def identity(folder: Path) -> dict[str, Any]:
    """Plain JSON values that name everything that the editor's edits depend on; where files lie does not count.

    ValueError as of `open_trained`, and when a file of the frozen half is missing. No weights are loaded.
    """
    editor, base, training = _read(folder)
    whole = _learnt_in_full(training)
    families.check_weights(families.with_weights(editor, folder / _WHOLE) if whole else editor)
    learnt = None if training is None else families.file_hash(folder / (_WHOLE if whole else _LEARNT))
    return {
        "editor": editor.model_dump(mode="json", exclude={"directory", "denoiser", "vae", "vlm"}),
        "encoders": families.encoders_identity(editor),
        "base": base,
        "training": None if training is None else training.model_dump(mode="json", include={"adapters", "adapter_layout", "connector"}),
        "learnt": learnt,
    }


def _read(folder: Path) -> tuple[PretrainedEditorConfig, str, LargeTrainingConfig | None]:
    """The editor, the hash of its base's weights, and how it was trained. ValueError when the record is missing or damaged."""
    try:
        record: dict[str, Any] = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
        editor = _EDITOR.validate_python(record["editor"])
        training = None if record["training"] is None else LargeTrainingConfig.model_validate(record["training"])
        return editor, record["base"], training
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{folder} contains no readable editor ({str(error).splitlines()[0]}); train it again") from error


def _learnt_in_full(training: LargeTrainingConfig | None) -> bool:
    return training is not None and training.adapters is None


def _learnt(model: nn.Module) -> dict[str, Tensor]:
    """Weights that learnt, by name; a weight that two layers share is written once."""
    return {name: weight.detach().cpu().contiguous() for name, weight in model.named_parameters() if weight.requires_grad}


def _write_record(folder: Path, editor: PretrainedEditorConfig, identity: str, training: LargeTrainingConfig | None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    record = {
        "editor": editor.model_dump(mode="json"),
        "base": identity,
        "training": None if training is None else training.model_dump(mode="json"),
    }
    (folder / _RECORD).write_text(json.dumps(record, indent=2, sort_keys=True) + "\n", encoding="utf-8")
