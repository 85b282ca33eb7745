"""Editors: models that turn a source into a candidate.

To add one, write a file beside this one whose ``EDITORS`` contains a spec for each editor by name, and name the file in the table
``MODULES``. Specs are read to check a configuration, so such a file imports heavy libraries only inside ``open``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from stages.config import FlowConfig

MODULES = (
    "stages.editors.world",  # the toy world's six simulated editors
)


@dataclass(frozen=True)
class Edited:
    """An edit: encoded image, and JSON metadata that only plug-ins of the same data set read."""

    image: bytes
    metadata: str = "{}"


class Editor(Protocol):
    """An editor that is ready to work, in the process that opened it."""

    def edit(self, source: Mapping[str, Any], seed: int) -> Edited:
        """The edit of a row of the ``sources`` contract; the same source and seed give the same bytes.

        A ``ValueError``, ``OSError`` or ``RuntimeError`` fails this candidate alone.
        """
        ...


@dataclass(frozen=True)
class EditorSpec:
    """What is known of an editor before it is opened.

    ``revision`` names weights and code. ``open`` makes the editor with the settings of a run, inside a worker process. ``settings`` are the
    part of them, as a plain JSON value, that edits depend on. Both raise ``ValueError`` naming a section that is missing.
    """

    revision: str
    open: Callable[[FlowConfig], Editor]
    settings: Callable[[FlowConfig], Any]


@cache
def specs() -> dict[str, EditorSpec]:
    """All editors by name."""
    return {name: spec for module in MODULES for name, spec in import_module(module).EDITORS.items()}


def check_name(name: str) -> None:
    """Raise ``ValueError`` when there is no editor of that name."""
    if name not in specs():
        raise ValueError(f"generate.editors: there is no editor {name!r}; known: {', '.join(specs())}")
