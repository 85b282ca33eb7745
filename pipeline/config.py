"""Configuration files: YAML in, one typed object out, and where every value came from.

The types belong to the layers (`stages.config.FlowConfig` composes them). This module reads a file, which may name another one that it
starts from (``base``), applies ``key.path=value`` overrides, and turns every mistake into a sentence that names file, line and key.
"""

from __future__ import annotations

import difflib
import re
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from pipeline.config_file import KeyPath, dotted, find, parse, read
from pipeline.config_keys import models_in
from stages.config import FlowConfig


@dataclass(frozen=True)
class Loaded:
    """A validated configuration. ``origins`` gives file and line, or the override, of every value that is not a default."""

    flow: FlowConfig
    origins: Mapping[KeyPath, str]


def load(path: str | Path, overrides: Sequence[str] = ()) -> Loaded:
    """Read and validate a configuration: a file, or a shipped one by its name. Raises ``ValueError`` with one line per mistake."""
    file = find(path)
    data, origins = read(file)
    if "base" in data:
        data, origins = _on_base(file, data, origins)
    for override in overrides:
        _apply(override, data, origins)
    try:
        return Loaded(FlowConfig.model_validate(data), origins)
    except ValidationError as error:
        found = [detail for detail in error.errors() if not _follows(detail, error.errors())]
        lines = [_sentence(dict(detail), data, origins, str(file)) for detail in found]
        raise ValueError("\n".join(dict.fromkeys(lines))) from None


def _follows(detail: ErrorDetails, others: Sequence[ErrorDetails]) -> bool:
    """Whether a list is too short only because its items are wrong, which pydantic reports beside each item."""
    place = detail["loc"]
    return detail["type"] == "too_short" and any(other["loc"][: len(place)] == place != other["loc"] for other in others)


def show(loaded: Loaded) -> str:
    """The resolved configuration as YAML; every value is followed by where it came from."""
    return "\n".join(_show(loaded.flow.model_dump(mode="json"), loaded.origins, (), 0)) + "\n"


def dump(flow: FlowConfig) -> str:
    """The resolved configuration as plain YAML, to be frozen in a run directory."""
    return yaml.safe_dump(flow.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def _on_base(path: Path, data: dict[str, Any], origins: dict[KeyPath, str]) -> tuple[dict[str, Any], dict[KeyPath, str]]:
    """The base configuration of ``data`` with the values of ``data`` merged into it. A base must not have a base itself."""
    where, name = origins[("base",)], data["base"]
    if not isinstance(name, str):
        raise ValueError(f"{where}: base: expected a configuration file, named relative to this one (given: {name!r})")
    try:
        base, base_origins = read(find(name, path.parent))
    except ValueError as error:
        raise ValueError(f"{where}: base: {error}") from None
    if "base" in base:
        raise ValueError(f"{where}: base: {name} has a base itself; name that one, and write the values of {name} here")
    _merge(base, {key: value for key, value in data.items() if key != "base"}, (), base_origins, origins)
    return base, base_origins


def _merge(
    base: dict[str, Any], changes: Mapping[str, Any], path: KeyPath, origins: dict[KeyPath, str], own: Mapping[KeyPath, str]
) -> None:
    """Merge mappings key by key; any other value, lists included, replaces the one in ``base``. Changes ``base`` and ``origins``."""
    for key, value in changes.items():
        inner = (*path, key)
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            _merge(base[key], value, inner, origins, own)
            continue
        base[key] = value
        for known in [known for known in origins if known[: len(inner)] == inner]:
            del origins[known]
        origins.update({known: place for known, place in own.items() if known[: len(inner)] == inner})


def _apply(override: str, data: dict[str, Any], origins: dict[KeyPath, str]) -> None:
    """Set one ``key.path=value`` in ``data``; the value is YAML."""
    key, separator, text = override.partition("=")
    if not separator or not key:
        raise ValueError(f"override {override!r} is not of the form key.path=value, e.g. reward.training.steps=100")
    try:
        value = parse(text)
    except yaml.YAMLError:
        raise ValueError(f"override {override!r}: {text!r} is not valid YAML") from None
    path: KeyPath = tuple(int(part) if part.isdigit() else part for part in key.split("."))
    target: Any = data
    for position, part in enumerate(path):
        last = position == len(path) - 1
        if isinstance(target, list):
            if not isinstance(part, int) or part >= len(target):
                raise ValueError(f"override {override!r}: {dotted(path[:position])} is a list of {len(target)}; give an index below that")
        elif not isinstance(target, dict):
            raise ValueError(f"override {override!r}: {dotted(path[:position])} is a value, it has no key {part}")
        if last:
            target[part] = value
        else:
            if isinstance(target, dict) and target.get(part) is None:
                target[part] = {}
            target = target[part]
    for known in [known for known in origins if known[: len(path)] == path]:
        del origins[known]
    for position in range(1, len(path) + 1):
        origins.setdefault(path[:position], f"command line ({override})")


def _sentence(detail: dict[str, Any], data: Any, origins: Mapping[KeyPath, str], file: str) -> str:
    """One pydantic error as a sentence with file, line and key."""
    path, models = _walk(detail["loc"], data)
    key = dotted(path)
    where = next((origins[path[:end]] for end in range(len(path), 0, -1) if path[:end] in origins), file)
    if detail["type"] == "extra_forbidden":
        known = [name for model in models for name in model.model_fields]
        return f"{where}: unknown key {key}; {_hint(str(path[-1]), known)}"
    if detail["type"] == "missing":
        return f"{where}: key {key} is missing and has no default"
    if detail["type"] == "union_tag_not_found":
        return f"{where}: key {key}.{detail['ctx']['discriminator'][1:-1]} is missing and has no default; `pipeline config explain {key}`"
    if detail["type"] == "union_tag_invalid":
        field, given = detail["ctx"]["discriminator"][1:-1], detail["ctx"]["tag"]
        known = re.findall("'(.+?)'", detail["ctx"]["expected_tags"])
        return f"{origins.get((*path, field), where)}: there is no {key}.{field} {given}; {_hint(given, known)}"
    message = detail["msg"].removeprefix("Value error, ")
    given = "" if isinstance(detail["input"], (dict, list, BaseModel)) else f" (given: {detail['input']!r})"
    return f"{where}: {key or 'the configuration'}: {message[0].lower() + message[1:]}{given}"


def _hint(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"known here: {', '.join(known)}"


def _walk(location: Iterable[str | int], data: Any) -> tuple[KeyPath, list[type[BaseModel]]]:
    """The key path of a pydantic location (which also names union members) and the models that own its last key."""
    path: list[str | int] = []
    owners: list[type[BaseModel]] = [FlowConfig]
    parts = list(location)
    for position, part in enumerate(parts):
        is_last = position == len(parts) - 1
        present = (isinstance(data, dict) and part in data) or (isinstance(data, list) and isinstance(part, int) and part < len(data))
        names_union_member = not present and (not is_last or any(part in (model.__name__, *_tags(model)) for model in owners))
        if names_union_member:
            owners = [model for model in owners if part in (model.__name__, *_tags(model))] or owners
            continue
        path.append(part)
        if is_last or not present:
            break
        data = data[part]
        if isinstance(part, str):
            owners = [m for owner in owners if part in owner.model_fields for m in models_in(owner.model_fields[part].annotation)]
    return tuple(path), owners


def _tags(model: type[BaseModel]) -> list[str]:
    return [str(value) for field in model.model_fields.values() if typing.get_origin(field.annotation) is typing.Literal
            for value in typing.get_args(field.annotation)]  # fmt: skip


def _show(value: Any, origins: Mapping[KeyPath, str], path: KeyPath, depth: int) -> list[str]:
    lines = []
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, entry in items:
        inner = (*path, key)
        head = "  " * depth + (f"{key}:" if isinstance(value, dict) else "-")
        if isinstance(entry, (dict, list)) and entry and not _is_flat(entry):
            lines.append(head)
            lines.extend(_show(entry, origins, inner, depth + 1))
        else:
            text = yaml.safe_dump(entry, default_flow_style=True, allow_unicode=True, width=10_000).strip().removesuffix("\n...")
            lines.append(f"{head} {text}  # {origins.get(inner, 'default')}")
    return lines


def _is_flat(value: Any) -> bool:
    return isinstance(value, list) and not any(isinstance(entry, (dict, list)) for entry in value)
