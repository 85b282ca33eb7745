"""Which release of Step1X-Edit a file is. Only v1.0 runs here; v1.1 and v1.2 are other models, with mostly the same tensors.

Source: src/diffusers/models/transformers/transformer_step1x_edit.py of Peyton-Chen/diffusers at 9223478 (names of v1.1 and v1.2).
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

SCALE = "connector.scale_factor"
_CONNECTOR = "connector.global_proj_out.weight"
_MAPPING = "text_token_mapping.weight"
_IN_DIFFUSERS = "time_embed.in_layer.weight"
_PIPELINES = {"Step1XEditPipeline": "1.1", "Step1XEditPipelineV1P2": "1.2"}
_DIFFERENCES = {
    "1.1": f"it has no {SCALE}, and places the reference image at other positions than the edit",
    "1.2": f"it has {_MAPPING}, a second way of the text into the denoiser, and reads another prompt",
}
_INDEX = "*.safetensors.index.json"


def check_names(path: Path, names: Collection[str]) -> None:
    """Raise ``ValueError`` saying the version where the names of a file's tensors are those of v1.1 or v1.2."""
    names = {*names, *_names_beside(path)}
    version = "1.2" if _MAPPING in names else "1.1" if _CONNECTOR in names and SCALE not in names else None
    if version is not None:
        layout = " in diffusers' layout" if _IN_DIFFUSERS in names else ""
        raise ValueError(_sentence(str(path), version, layout))


def check_folder(folder: Path) -> None:
    """Raise ``ValueError`` saying the version where a folder is that of v1.1 or v1.2 in diffusers' layout."""
    try:
        found = json.loads((folder / "model_index.json").read_text(encoding="utf-8"))["_class_name"]
    except (OSError, ValueError, KeyError, TypeError):
        return  # the released folder has none
    if found in _PIPELINES:
        raise ValueError(_sentence(str(folder), _PIPELINES[found], " in diffusers' layout"))


def _names_beside(path: Path) -> set[str]:
    """Names of the tensors of all files of a model, where the file is one of several."""
    names: set[str] = set()
    for index in path.parent.glob(_INDEX):
        try:
            listed = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if path.name in listed.values():
            names |= listed.keys()
    return names


def _sentence(what: str, version: str, layout: str) -> str:
    return (
        f"{what} is Step1X-Edit v{version}{layout}: {_DIFFERENCES[version]}; use v1.0, step1x-edit-i1258.safetensors of "
        f"stepfun-ai/Step1X-Edit, or for edits alone the editor step1x-edit-v{version}"
    )
