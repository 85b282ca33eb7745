"""What the configuration keys are: type, default and description of each, read from the classes that check them.

A description names the unit where a value has one. `pipeline config explain` prints this; docs/configuration-reference.md is made of it.
"""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Iterator
from typing import Any

import annotated_types
import yaml
from pydantic import BaseModel, RootModel
from pydantic.fields import FieldInfo

from stages.config import FlowConfig

REFERENCE_HEAD = """\
# Configuration reference

Every key, with its type, its default and what it is. Made by `pipeline config explain --all > docs/configuration-reference.md`;
`pipeline config explain KEY` prints one key. [configuration.md](configuration.md) says how files, overrides and paths work.
In a key, N is the index of a list's entry.
"""
_PLAIN = {int: "integer", float: "number", str: "text", bool: "true or false", type(None): "null"}
_SIGNS = {
    annotated_types.Ge: (">=", "ge"),
    annotated_types.Gt: (">", "gt"),
    annotated_types.Le: ("<=", "le"),
    annotated_types.Lt: ("<", "lt"),
}


def explain(key: str) -> str:
    """The key, its type, default and description, and the keys below it. Raises ``ValueError`` for a key that does not exist."""
    models: list[type[BaseModel]] = [FlowConfig]
    parts = key.split(".")
    found: list[tuple[type[BaseModel], FieldInfo]] = []
    section: Any = None  # what the section above has where the configuration leaves it out; None where that is no one class
    above: Any = None
    name = ""  # of the last part that is a key of the schema: neither an index nor a key of a mapping
    for position, part in enumerate(parts):
        kinds = " ".join(kind(field) for _, field in found)
        if part.isdigit() or part == "N" or "mapping from" in kinds:
            if found and "list of" not in kinds and "mapping from" not in kinds:
                raise ValueError(f"{'.'.join(parts[:position])} is no list, it has no entry {part}")
            section = None
            continue
        found = [(model, model.model_fields[part]) for model in models if part in model.model_fields]
        if not found:
            known = [name for model in models for name in model.model_fields]
            close = difflib.get_close_matches(part, known, n=1, cutoff=0.5)
            place = ".".join(parts[:position]) or "the top"
            hint = f"did you mean {close[0]}?" if close else f"known there: {', '.join(dict.fromkeys(known)) or 'nothing, it is a value'}"
            raise ValueError(f"there is no key {part} at {place}; {hint}")
        above, name = section, part
        section = getattr(section, part, None) if section is not None else found[0][1].get_default(call_default_factory=True)
        section = section if isinstance(section, BaseModel) and len(found) == 1 else None
        models = list(dict.fromkeys(inner for _, field in found for inner in _with_keys(field)))
    if not found:
        raise ValueError(f"{key!r} names no key; give one such as reward.training.steps")
    variants = len({(kind(field), default(field), field.description) for _, field in found}) > 1
    of_above = above is not None and name in type(above).model_fields  # the default may be another variant than the one with this key
    value = _yaml(getattr(above, name)) if of_above else default(found[0][1])
    lines = []
    for model, field in dict(found).items():
        owner = f" (where {_tag(model)})" if variants and _tag(model) else ""
        lines += [f"{key}{owner}", f"  type: {kind(field)}", f"  default: {default(field) if variants else value}"]
        lines += [f"  {text}" for text in [field.description or _about(models)] if text]
        if not variants:
            break
    for model in models:
        heading = f" where {_tag(model)}" if _tag(model) else ""
        lines += ["", f"keys below it{heading}:"]
        width = max(map(len, model.model_fields), default=0)
        lines += [f"  {name:<{width}}  {field.description or kind(field)}" for name, field in model.model_fields.items()]
    return "\n".join(lines)


def reference() -> str:
    """All keys as a page: a table per section. A section that occurs at several keys is described once."""
    return REFERENCE_HEAD + "".join(_sections(FlowConfig, "", {}))


def _sections(model: type[BaseModel], path: str, seen: dict[type[BaseModel], str]) -> Iterator[str]:
    title = f"`{path}`" if path else "Top level"
    if _tag(model):
        title += f" where {_tag(model)}"
    rows, below = [], []
    for name, field in model.model_fields.items():
        key = f"{path}.{name}" if path else name
        inner = _with_keys(field)
        under = f"{key}.N" if inner and kind(field).startswith("list of") else key
        known = sorted({seen[other] for other in inner if other in seen} - {under})
        below += [(other, under) for other in inner if other not in seen]
        seen.update({other: under for other in inner if other not in seen})
        text = f"{field.description or _about(inner)}{f' (keys as in {known[0]})' if known else ''}".strip()
        rows.append(
            "| "
            + " | ".join(cell.replace("|", "\\|").replace("<", "&lt;") for cell in (f"`{name}`", kind(field), default(field), text))
            + " |\n"
        )
    yield f"\n## {title}\n\n{_about([model])}\n\n| key | type | default | |\n| --- | --- | --- | --- |\n{''.join(rows)}"
    for other, under in below:
        yield from _sections(other, under, seen)


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """Configuration classes inside an annotation such as ``tuple[A, ...]`` or ``A | B | None``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in typing.get_args(annotation) for model in models_in(inner)]


def _with_keys(field: FieldInfo) -> list[type[BaseModel]]:
    """The classes of a field's value that have keys; a ``RootModel`` is a plain value."""
    return [model for model in models_in(field.annotation) if not issubclass(model, RootModel)]


def kind(field: FieldInfo) -> str:
    """The type of a key's value in words, with its bounds."""
    bounds = [
        f"{sign} {getattr(bound, name)}" for bound in field.metadata for kind, (sign, name) in _SIGNS.items() if isinstance(bound, kind)
    ]
    bounds += [f"at least {bound.min_length}" for bound in field.metadata if isinstance(bound, annotated_types.MinLen)]
    return ", ".join([_words(field.annotation), *bounds])


def default(field: FieldInfo) -> str:
    """The default of a key as YAML; ``required`` where there is none."""
    if field.is_required():
        return "required"
    return _yaml(field.get_default(call_default_factory=True))


def _yaml(value: Any) -> str:
    if isinstance(value, RootModel):
        value = value.root
    if isinstance(value, BaseModel):
        other = value.model_dump(mode="json", exclude_defaults=True)
        return f"the defaults below, with {_yaml(other)}" if other else "the defaults below"
    return yaml.safe_dump(_plain(value), default_flow_style=True, allow_unicode=True, width=10_000).strip().removesuffix("\n...")


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, (tuple, list)):
        return [_plain(entry) for entry in value]
    return value


def _words(annotation: Any) -> str:
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _words(inner[0])
    if origin is typing.Literal:
        return " or ".join(str(value) for value in inner)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(_words(entry) for entry in inner))
    if origin in (tuple, list) and (origin is list or inner[1:] == (...,)):
        return f"list of {_words(inner[0])}"
    if origin is tuple:
        return f"list of {len(inner)}: {', '.join(map(_words, inner))}"
    if origin is dict:
        return f"mapping from {_words(inner[0])} to {_words(inner[1])}"
    if isinstance(annotation, type) and issubclass(annotation, RootModel):
        return _words(annotation.model_fields["root"].annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "section"
    return _PLAIN.get(annotation, getattr(annotation, "__name__", str(annotation)))


def _about(models: list[type[BaseModel]]) -> str:
    return " ".join((models[0].__doc__ or "").split()) if models else ""


def _tag(model: type[BaseModel]) -> str:
    """The key and value that choose this class among others, such as ``dataset: triplets``."""
    for name, field in model.model_fields.items():
        values = typing.get_args(field.annotation)
        if typing.get_origin(field.annotation) is typing.Literal and len(values) == 1 and field.is_required():
            return f"{name}: {values[0]}"
    return ""
