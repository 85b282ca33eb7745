"""What describes an editor that runs on a pipeline of diffusers. The adapter is one; models and families of models are values.

A family is a pipeline class with its encoder: models of a family differ in weights and defaults only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from stages.editors.editor import CanvasRule, Licence
from stages.editors.licences import APACHE

if TYPE_CHECKING:
    from PIL import Image
    from torch import Tensor

    Condition = dict[str, Tensor]
    """What the encoders make of one request, by argument of the pipeline; each with a leading dimension of one."""

Pipeline = Any
"""A pipeline of diffusers."""


@dataclass(frozen=True)
class Family:
    """A pipeline and its encoders. ``pipeline``: the class of diffusers that the weights' ``model_index.json`` names. ``packages``: what it
    needs beside the project's own dependencies. ``one_instruction``: states are as long as the text, so a batch has one instruction.

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
    one_instruction: bool = False
    packages: tuple[str, ...] = ()


@dataclass(frozen=True)
class NativeModel:
    """A model of a family. ``hub``: its id on the Hub. ``steps``, ``guidance`` and ``negative_prompt`` are its authors' values.

    ``guidance`` is None where the weights take none, ``negative_prompt`` where they do without classifier-free guidance. The rest is that
    of :class:`~stages.editors.editor.EditorSpec`.
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
    max_batch: int = 1
