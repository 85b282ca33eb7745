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
    try:
        record: dict[str, Any] = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
        editor = _EDITOR.validate_python(record["editor"])
        training = None if record["training"] is None else LargeTrainingConfig.model_validate(record["training"])
    except (OSError, KeyError, ValueError) as error:
        raise ValueError(f"{folder} contains no readable editor ({str(error).splitlines()[0]}); train it again") from error
    if training is not None and training.adapters is None:
        return editor, families.open_model(families.with_weights(editor, folder / _WHOLE), device, dtype)
    if families.model_identity(editor) != record["base"]:
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
