"""The systems that are compared: bounds, trained editors, further editors, and edits that were made elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from stages.config import FlowConfig
from stages.editors import catalogue
from stages.evaluate_editor.config import EvaluateEditorConfig

COPY, EXACT = "copy-of-source", "exact-edit"
"""Lower and upper bound that are judged with the editors."""
TRAINED, BASE = "trained", "base"
"""Name of the editor that opens what finetune publishes, and finetune's name of the editor that was not fine-tuned."""


@dataclass(frozen=True)
class System:
    """One row of the table. ``key``: plain JSON value that its edits depend on. ``editor`` and ``settings``: of an editor of the catalogue;
    ``place``: where the configuration names that editor; ``folder``: of edits made elsewhere.
    """

    name: str
    kind: Literal["copy", "exact", "editor", "folder"]
    key: Any
    editor: str = ""
    settings: Mapping[str, Any] | None = None
    place: str = ""
    folder: str = ""


def systems(
    flow: FlowConfig, config: EvaluateEditorConfig, arms: Sequence[str], editors: Path | None, encodings: Path | None = None
) -> list[System]:
    """All of them, the bounds first. ``arms``: the trained editors; ``editors``: their folder, None before they are trained.
    ``encodings``: folder that trained editors of one base share (`stages.editors.encodings`).

    Raises ``ValueError`` for an editor that there is not, a name that two systems have, and a reference that is none of them.
    """
    found = [System(COPY, "copy", COPY)]
    if config.items.has_references:
        found.append(System(EXACT, "exact", EXACT))
    bounds = {system.name for system in found}
    shared = {} if encodings is None else {"encodings": str(encodings)}
    for arm in arms:
        if editors is None:
            found.append(System(arm, "editor", None, TRAINED))
        else:
            found.append(_editor(flow, arm, TRAINED, shared | {"path": str(editors / arm)}, f"the trained editor {arm}"))
    for number, entry in enumerate(config.editors):
        given = (shared if entry.editor == TRAINED else {}) | entry.settings
        found.append(_editor(flow, entry.name or entry.editor, entry.editor, given, f"evaluate_editor.editors.{number}"))
    for number, folder in enumerate(config.edits):
        if not Path(folder.path).is_dir():
            raise ValueError(f"evaluate_editor.edits.{number}.path: there is no folder {folder.path}; name a system's folder of edits")
        found.append(System(folder.name, "folder", _content(Path(folder.path)), folder=str(Path(folder.path).absolute())))
    ((name, times), *_) = Counter(system.name for system in found).most_common(1)
    if times > 1:
        raise ValueError(f"evaluate_editor: {times} systems are called {name!r}; give them other names")
    names = [system.name for system in found]
    if config.reference_arm not in names:
        offered = ", ".join(name for name in names if name not in bounds) or "none"
        raise ValueError(f"evaluate_editor.reference_arm: there is no system {config.reference_arm!r}; there are {offered}")
    if len(names) == len(bounds):
        raise ValueError(
            "evaluate_editor: there is nothing to compare; run finetune, or name evaluate_editor.editors or evaluate_editor.edits"
        )
    return found


def _editor(flow: FlowConfig, name: str, editor: str, given: Mapping[str, Any], key: str) -> System:
    spec = catalogue.find(editor, key)
    settings = catalogue.settings_of(spec, given, f"{key}.settings")
    if missing := spec.missing(settings):
        raise ValueError(catalogue.under_key(missing, key))
    try:
        identity = [spec.name, spec.revision, spec.identity(settings, flow)]
    except ValueError as error:
        raise ValueError(catalogue.under_key(error, key)) from error
    return System(name, "editor", identity, editor, settings.model_dump(mode="json"), place=key)


def check_ready(found: Sequence[System]) -> None:
    """Raise ``ValueError`` naming the key of an editor that needs what does not run, such as a server."""
    for system in found:
        if system.place:
            spec = catalogue.find(system.editor, system.place)
            if lack := spec.unready(catalogue.settings_of(spec, system.settings or {}, f"{system.place}.settings")):
                raise ValueError(catalogue.under_key(lack, system.place))


def _content(folder: Path) -> list[tuple[str, int, int]]:
    """Names, sizes and times of the files below a folder."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return [(path.relative_to(folder).as_posix(), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
