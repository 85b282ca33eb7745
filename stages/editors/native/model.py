"""What describes an editor that runs on a pipeline of diffusers. The adapter is one; models and families of models are values.

A family is a pipeline class with its encoder: models of a family differ in weights and defaults only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from stages.editors.editor import CanvasRule, EditorSpec, Licence
from stages.editors.native import weights
from stages.editors.native.settings import NativeSettings, settings_type

if TYPE_CHECKING:
    from PIL import Image
    from torch import Tensor

    from stages.config import FlowConfig
    from stages.editors.native.adapter import NativeEditor

    Condition = dict[str, Tensor]
    """What the encoders make of one request, by argument of the pipeline; each with a leading dimension of one."""

APACHE = Licence("Apache-2.0")
Pipeline = Any
"""A pipeline of diffusers."""


@dataclass(frozen=True)
class Family:
    """A pipeline and its encoders. ``pipeline``: the class of diffusers that the weights' ``model_index.json`` names. ``packages``: what it
    needs beside the project's own dependencies.

    ``encode(pipeline, image, text)`` makes the condition of one request; negative prompts go the same way. ``refusal(pipeline, text)`` says
    why the encoders cannot read a text in full, empty where they can. ``arguments(size, guidance)`` are arguments of the call beside
    images, conditions, steps and generators; size is (width, height). ``denoiser(pipeline)`` makes the pipeline that is called.
    """

    pipeline: str
    encode: Callable[[Pipeline, Image.Image, str], Condition]
    refusal: Callable[[Pipeline, str], str]
    arguments: Callable[[tuple[int, int], float], dict[str, Any]]
    denoiser: Callable[[Pipeline], Pipeline]
    conditioning: Literal["instruction", "image and instruction"] = "image and instruction"
    packages: tuple[str, ...] = ()


@dataclass(frozen=True)
class NativeModel:
    """A model of a family. ``hub``: its id on the Hub. ``steps``, ``guidance`` and ``negative_prompt`` are its authors' values.

    ``guidance`` is None where the weights take none, ``negative_prompt`` where they do without classifier-free guidance. The rest is that
    of :class:`EditorSpec`.
    """

    name: str
    family: Family
    hub: str
    canvas: CanvasRule
    steps: int
    guidance: float | None
    negative_prompt: str | None
    memory_gb: float
    seconds: float
    seconds_source: str
    licence: Licence = APACHE
    max_batch: int = 4


def spec(model: NativeModel) -> EditorSpec:
    """The editor that the model is."""

    def load(settings: NativeSettings, flow: FlowConfig) -> NativeEditor:
        from stages.editors.native.adapter import NativeEditor

        return NativeEditor(model, settings)

    def identity(settings: NativeSettings, flow: FlowConfig) -> dict[str, Any]:
        values = settings.model_dump(mode="json", exclude={"path", "revision", "offload"})
        return values | {"weights": weights.identity(model.name, model.hub, settings)}

    return EditorSpec(
        name=model.name,
        revision="1",
        licence=model.licence,
        open=load,
        hub=model.hub,
        settings=settings_type(model.name, model.steps, model.guidance, model.negative_prompt),
        canvas=model.canvas,
        forwards_per_step=1 if model.negative_prompt is None else 2,
        conditioning=model.family.conditioning,
        max_batch=model.max_batch,
        memory_gb=model.memory_gb,
        seconds=model.seconds,
        seconds_source=model.seconds_source,
        tested="tiny weights",
        identity=identity,
        missing=lambda _: missing(model),
    )


def missing(model: NativeModel) -> str:
    """What is not installed that the model needs, and what brings it; empty where nothing is missing."""
    absent = [package for package in model.family.packages if find_spec(package) is None]
    return f"{model.name} needs {', '.join(absent)}: pip install {' '.join(absent)}" if absent else ""
