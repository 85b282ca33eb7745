"""All editors by name: those of this project, and those that installed packages bring.

To add one here, write a file beside this one whose ``EDITORS`` lists the specs, and name the file in ``MODULES``. A package of yours brings
editors with an entry point of the group ``edit_reward_pipeline.editors`` that names such a list. Specs are read to check a configuration,
so these files import heavy libraries only inside ``open``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from pydantic import ValidationError

from stages.editors.editor import EditorSpec
from stages.engine.config import Config

MODULES = (
    "stages.editors.native.models",  # FLUX.1-Kontext, Qwen-Image-Edit, FLUX.2-klein, LongCat, FireRed: pipelines of diffusers
    "stages.editors.process.specs",  # in interpreters of their own
    "stages.editors.http.specs",  # behind a server
    "stages.editors.trained",  # directories that the step finetune published
    "stages.editors.native.step1x",  # Step1X-Edit v1.0, from the released weights
    "stages.editors.world",  # the toy world's six simulated editors
)
GROUP = "edit_reward_pipeline.editors"
_SETTING = re.compile(r"(?<![\w.])settings\.(?=\w)")


@cache
def specs() -> dict[str, EditorSpec]:
    """All editors by name. Raises ``ValueError`` where two have one name."""
    found: dict[str, EditorSpec] = {}
    plugged = [(f"the package {point.dist and point.dist.name}", point.load()) for point in entry_points(group=GROUP)]
    for origin, listed in [*((module, import_module(module).EDITORS) for module in MODULES), *plugged]:
        for spec in listed:
            if spec.name in found:
                raise ValueError(f"{origin} brings an editor {spec.name!r}, and there is one already; remove or rename one")
            found[spec.name] = spec
    return found


def find(name: str, key: str) -> EditorSpec:
    """The editor of that name. Raises ``ValueError`` naming the configuration's key where there is none."""
    if name not in specs():
        raise ValueError(f"{key}: there is no editor {name!r}; known: {', '.join(specs())}")
    return specs()[name]


def under_key(said: object, key: str) -> str:
    """What an editor says, for the reader of a configuration: its ``settings.NAME`` are written out from the key where the editor is named.

    The key comes first where it names no setting.
    """
    named = _SETTING.sub(f"{key}.settings.", str(said))
    return named if named != str(said) else f"{key}: {said}"


def settings_of(spec: EditorSpec, given: Mapping[str, Any], key: str) -> Config:
    """Its settings: the defaults, and what is given. Raises ``ValueError`` naming the configuration's key of a wrong one."""
    try:
        return spec.settings.model_validate(dict(given))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, (key, *first["loc"])))
        known = ", ".join(spec.settings.model_fields) or "none"
        said = "there is no such setting" if first["type"] == "extra_forbidden" else first["msg"].removeprefix("Value error, ")
        raise ValueError(f"{place}: {said}; the settings of {spec.name} are: {known}") from error
