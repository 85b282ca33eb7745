"""Whether a folder of an editor or an encoder has all its files. Libraries put defaults in the place of missing ones, without an error."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

_AGAIN = "download it again"
_VOCABULARIES = (("tokenizer.json",), ("spiece.model",), ("vocab.json", "merges.txt"))
"""Files that tokenizers are made of; one of these lists is enough."""
_INDEX = ".safetensors.index.json"


def check_pipeline(folder: Path, pipeline: str, without: Collection[str] = ()) -> None:
    """Raise ``ValueError`` naming the file that is missing or damaged in a folder of diffusers' layout, or where it is of another class.

    pipeline: the class that it must be of. without: parts that are not looked at.
    """
    found = _object(folder / "model_index.json", "the list of a pipeline's parts", "_class_name")
    if found["_class_name"] != pipeline:
        raise ValueError(f"{folder} contains a {found['_class_name']}, and this editor is a {pipeline}; name the folder of its weights")
    for name, part in found.items():
        if isinstance(part, list) and len(part) == 2 and part[1] is not None and name not in without:
            _check_part(folder / name, str(part[1]))


def check_model(part: Path) -> None:
    """Raise ``ValueError`` naming the file that is missing or damaged in a model's folder. Headers of weights are read, no weights."""
    _object(part / "config.json", "the sizes of its weights", "model_type", "_class_name")
    _check_json(part)
    listed = {
        name for index in part.glob(f"*{_INDEX}") for name in _object(index, "the list of weights", "weight_map")["weight_map"].values()
    }
    files = sorted({*part.glob("*.safetensors"), *(part / name for name in listed)})
    if not files:
        raise ValueError(f"{part} has no weights, which are *.safetensors; {_AGAIN}")
    for file in files:
        try:
            with safe_open(file, framework="pt"):
                pass
        except FileNotFoundError:
            raise ValueError(f"there is no {file}, which the list of weights beside it names; {_AGAIN}") from None
        except (OSError, SafetensorError) as error:
            raise ValueError(f"{file} is damaged ({error}); {_AGAIN}") from None


def check_tokenizer(part: Path) -> None:
    """Raise ``ValueError`` naming the file that is missing or damaged in a tokenizer's folder."""
    _object(part / "tokenizer_config.json", "the tokenizer's special tokens", "tokenizer_class")
    if not any(all((part / name).is_file() for name in names) for names in _VOCABULARIES):
        wanted = " or ".join(" and ".join(names) for names in _VOCABULARIES)
        raise ValueError(f"{part} has no vocabulary, which is {wanted}; {_AGAIN}")
    if (part / "tokenizer.json").exists():
        _object(part / "tokenizer.json", "the tokenizer's vocabulary", "model")
    _check_json(part)


def _check_part(part: Path, kind: str) -> None:
    """kind: name of its class, of diffusers, transformers or another package."""
    if kind.removesuffix("Fast").endswith("Tokenizer"):
        check_tokenizer(part)
    elif kind.endswith("Processor"):
        if not kind.endswith("ImageProcessor"):
            check_tokenizer(part)
        one = next((part / name for name in ("processor_config.json", "preprocessor_config.json") if (part / name).is_file()), None)
        _object(one or part / "preprocessor_config.json", "how images are prepared", "image_processor_type", "image_processor")
    elif kind.endswith("Scheduler"):
        _object(part / "scheduler_config.json", "the times of sampling", "_class_name")
    else:
        check_model(part)


def _check_json(part: Path) -> None:
    for path in sorted(part.glob("*.json")):
        _json(path)


def _object(path: Path, contents: str, *keys: str) -> dict[str, Any]:
    """The object in a file, which has one of the keys. contents: what the file says, for the message."""
    if not path.is_file():
        raise ValueError(f"there is no {path}, which says {contents}; {_AGAIN}")
    found = _json(path)
    if not isinstance(found, dict) or not any(key in found for key in keys):
        raise ValueError(f"{path} has no {' or '.join(keys)}, and should say {contents}; {_AGAIN}")
    return found


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is damaged ({error}); {_AGAIN}") from None
