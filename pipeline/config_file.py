"""One configuration file: found by its path or by the name of a shipped one, and read as YAML with the line of every key."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import ConstructorError

KeyPath = tuple[str | int, ...]

_INSTALLED, _CHECKOUT = Path(__file__).parent / "configs", Path(__file__).parents[1] / "configs"
SHIPPED = _INSTALLED if _INSTALLED.is_dir() else _CHECKOUT
"""Folder of the shipped configurations: a wheel has it inside the package."""


def shipped() -> dict[str, Path]:
    """The shipped configurations by name, such as ``demo`` or ``ablations/world``; paths below the working directory are relative to it."""
    here = Path.cwd()
    found = {path.relative_to(SHIPPED).with_suffix("").as_posix(): path for path in sorted(SHIPPED.rglob("*.yaml"))}
    return {name: path.relative_to(here) if path.is_relative_to(here) else path for name, path in found.items()}


def _names() -> str:
    """The shipped configurations that a newcomer may want."""
    return ", ".join(sorted(name for name in shipped() if "/" not in name))


def find(name: str | Path, folder: Path = Path()) -> Path:
    """The file of this name in ``folder``; where there is none, the shipped configuration of this name."""
    path = folder / name
    return path if path.is_file() else shipped().get(str(name), path)


class _Loader(yaml.SafeLoader):
    """Plain values, and ``!beside PATH``, a path relative to the folder of the file.

    As in YAML 1.2 only ``true`` and ``false`` are truth values: ``off`` is text.
    """

    folder: Path | None = None
    """Of the file that is read; None for an override, which is in no file."""

    def beside(self, node: yaml.Node) -> str:
        """The value of a node ``!beside PATH``."""
        if self.folder is None or not isinstance(node, yaml.ScalarNode):
            raise ConstructorError(None, None, "!beside is for a path in a configuration file", node.start_mark)
        return str(self.folder / node.value)


_Loader.add_constructor("!beside", _Loader.beside)

_BOOLEAN = "tag:yaml.org,2002:bool"
_Loader.yaml_implicit_resolvers = {
    first: [resolver for resolver in resolvers if resolver[0] != _BOOLEAN]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_BOOLEAN, re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))


def parse(text: str, folder: Path | None = None) -> Any:
    """The value of a YAML text. Raises ``yaml.YAMLError``, and ``ValueError`` for a value such as a date that does not exist."""
    loader = _Loader(text)
    loader.folder = folder
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def read(path: Path) -> tuple[dict[str, Any], dict[KeyPath, str]]:
    """The values of a file, and file and line of each key. Raises ``ValueError`` with one sentence."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ValueError(f"configuration file {path} does not exist; the shipped ones are {_names()}") from None
    except OSError as error:
        raise ValueError(f"configuration file {path} cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise ValueError(f"configuration file {path} is not UTF-8 text; save it again as UTF-8") from None
    try:
        node, data = yaml.compose(text, Loader=_Loader), parse(text, path.parent)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        tab = "; indent with spaces, not with tabs" if "'\\t'" in str(error.problem) else ""
        raise ValueError(f"{path}{line}: not valid YAML ({error.problem}{tab})") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not valid YAML ({' '.join(str(error).split())})") from None
    if node is None:
        return {}, {}
    if not isinstance(node, yaml.MappingNode):
        raise ValueError(f"{path}, line 1: a configuration is a mapping of sections such as generate and reward")
    origins: dict[KeyPath, str] = {}
    try:
        _locate(node, (), str(path), origins)
    except RecursionError:
        raise ValueError(f"{path}: a value contains itself through an alias (*); write it out") from None
    return data, origins


def _locate(node: yaml.Node, path: KeyPath, file: str, origins: dict[KeyPath, str]) -> None:
    """File and line of every key below ``node``."""
    if isinstance(node, yaml.MappingNode):
        for key_node, value_node in node.value:
            inner = (*path, str(key_node.value))
            if inner in origins:
                raise ValueError(f"{file}, line {key_node.start_mark.line + 1}: duplicate key {dotted(inner)}; keep one of the two")
            origins[inner] = f"{file}, line {key_node.start_mark.line + 1}"
            _locate(value_node, inner, file, origins)
    elif isinstance(node, yaml.SequenceNode):
        for position, value_node in enumerate(node.value):
            origins[(*path, position)] = f"{file}, line {value_node.start_mark.line + 1}"
            _locate(value_node, (*path, position), file, origins)


def dotted(path: KeyPath) -> str:
    """A key path as it is written: ``filter.selections.0.count``."""
    return ".".join(str(part) for part in path)
