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
    _check_base(folder, editor, base)
    model = families.open_model(editor, device, dtype)
    if training is not None:
        ready_to_learn(model, training, device)
        _load_learnt(model, folder)
    return editor, model.to(device).eval()


def exchange_learnt(model: nn.Module, before: Path, after: Path) -> bool:
    """Put what the editor of the folder `after` learnt into the model that was read from `before`, in place.

    Both have adapters of the same training on the same base; or `before` is the base. False, with nothing changed, for others. ValueError
    as of `open_trained`.
    """
    (editor, base, training), (other, other_base, wanted) = _read(before), _read(after)
    if (editor, base) != (other, other_base) or wanted is None or wanted.adapters is None or training not in (None, wanted):
        return False
    _check_base(after, other, base)
    device = next(model.parameters()).device
    if training is None:
        ready_to_learn(model, wanted, device)
    _load_learnt(model, after)
    model.to(device).eval()
    return True


def read_config(folder: Path) -> PretrainedEditorConfig:
    """The editor that was trained. ValueError when the record is missing or damaged."""
    return _read(folder)[0]


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


def _check_base(folder: Path, editor: PretrainedEditorConfig, base: str) -> None:
    if families.model_identity(editor) != base:
        raise ValueError(f"{folder} was trained from other weights than {editor.directory} has now; restore them, or train again")


def _load_learnt(model: nn.Module, folder: Path) -> None:
    try:
        learnt = load_file(folder / _LEARNT)
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{folder / _LEARNT} is not readable ({error}); train the editor again") from error
    wanted = {name: tuple(weight.shape) for name, weight in model.named_parameters() if weight.requires_grad}
    found = {name: tuple(weight.shape) for name, weight in learnt.items()}
    different = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
    if different:
        name = different[0]
        raise ValueError(
            f"{folder / _LEARNT}: {name} is {found.get(name)}, and the training of {folder / _RECORD} has {wanted.get(name)} "
            f"({len(different)} weights differ); train the editor again"
        )
    model.load_state_dict(learnt, strict=False)


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
