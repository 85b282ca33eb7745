"""The editor that a model is, as the catalogue lists it."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from stages.editors.editor import EditorSpec
from stages.editors.native import weights
from stages.editors.native.model import NativeModel
from stages.editors.native.settings import NativeSettings, settings_type

if TYPE_CHECKING:
    from stages.config import FlowConfig
    from stages.editors.native.adapter import NativeEditor

ADAPTER = 1
"""Counts changes of the adapter that change edits."""


def editor_of(model: NativeModel) -> EditorSpec:
    """The editor that the model is."""

    def load(settings: NativeSettings, flow: FlowConfig) -> NativeEditor:
        from stages.editors.native.adapter import NativeEditor

        return NativeEditor(model, settings)

    def identity(settings: NativeSettings, flow: FlowConfig) -> dict[str, Any]:
        values = settings.model_dump(mode="json", exclude={"path", "revision", "offload"})
        return values | {"weights": weights.identity(model.name, model.hub, model.family.pipeline, settings), "adapter": ADAPTER}

    return EditorSpec(
        name=model.name,
        revision="main",
        licence=model.licence,
        open=load,
        hub=model.hub,
        settings=settings_type(model.name, model.steps, model.guidance, model.negative_prompt),
        canvas=model.canvas,
        forwards_per_step=1 if model.negative_prompt is None else 2,
        conditioning=model.family.conditioning,
        one_instruction=model.family.one_instruction,
        max_batch=model.max_batch,
        memory_gb=model.memory_gb,
        seconds=model.seconds,
        seconds_source=model.seconds_source,
        tested="tiny weights",
        identity=identity,
        missing=lambda _: _missing(model),
    )


def _missing(model: NativeModel) -> str:
    """What is not installed that the model needs, and what brings it; empty where nothing is missing."""
    absent = [package for package in model.family.packages if find_spec(package) is None]
    return f"{model.name} needs {', '.join(absent)}: pip install {' '.join(absent)}" if absent else ""
