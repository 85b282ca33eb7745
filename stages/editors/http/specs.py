"""Editors that vLLM-Omni and SGLang serve, and which of the two serves a model rightly.

Read in the sources of vLLM-Omni 0.30.0 and SGLang 0.5.23: vLLM-Omni calls the Qwen2.5-VL of Qwen-Image-Edit without ``mm_token_type_ids``,
so the transformers that it needs (5.13) loses the positions of the image; SGLang has an encoder of its own, which computes them. SGLang
serves neither FLUX.1-Kontext nor OmniGen2 nor BAGEL.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from stages.editors import canvas_rules
from stages.editors.editor import CanvasRule, EditorSpec, Licence
from stages.editors.http.settings import (
    PLACES,
    BagelSettings,
    HttpSettings,
    KontextSettings,
    OmniGen2Settings,
    QwenPlusSettings,
    QwenSettings,
)
from stages.editors.licences import APACHE, FLUX_DEV
from stages.editors.process import canvas

if TYPE_CHECKING:
    from stages.config import FlowConfig
    from stages.editors.editor import Editor

VLLM, SGLANG = ("vllm",), ("sglang",)
COMMANDS = {"vllm": "vllm serve {} --omni", "sglang": "sglang serve --model-path {}"}
ESTIMATE = "estimated from its operations at 400 TFLOP/s; on the server's GPU"


def http_editor(
    name: str,
    hub: str,
    engines: Collection[str],
    settings: type[HttpSettings],
    licence: Licence = APACHE,
    canvas: CanvasRule | None = None,
    **known: Any,
) -> EditorSpec:
    """An editor whose model a server has. ``engines``: those that condition it as it was trained. ``known``: more fields of the spec."""
    command = " or ".join(f"`{COMMANDS[engine].format(hub)}`" for engine in engines)

    def missing(chosen: HttpSettings) -> str:
        return "" if chosen.base_url else f"settings.base_url names no server; {command} starts one"

    def opened(chosen: HttpSettings, flow: FlowConfig) -> Editor:
        from stages.editors.http.editor import HttpEditor

        if lack := missing(chosen):
            raise ValueError(f"editor {name}: {lack}")
        return HttpEditor(name, hub, engines, chosen)

    def unready(chosen: HttpSettings) -> str:
        from stages.editors.http.editor import HttpEditor

        try:
            HttpEditor(name, hub, engines, chosen.model_copy(update={"tries": min(chosen.tries, 2)})).close()
        except ValueError as error:
            return str(error)
        return ""

    return EditorSpec(
        name=name,
        revision="served",
        licence=licence,
        open=opened,
        hub=hub,
        settings=settings,
        canvas=canvas,
        max_batch=16,
        identity=lambda chosen, flow: chosen.model_dump(mode="json", exclude=PLACES),
        missing=missing,
        unready=unready,
        seconds_source=ESTIMATE,
        **known,
    )


EDITORS = [
    http_editor(
        "http/flux-kontext", "black-forest-labs/FLUX.1-Kontext-dev", VLLM, KontextSettings, FLUX_DEV, canvas_rules.kontext,
        conditioning="instruction", seconds=18,
    ),
    http_editor(
        "http/qwen-image-edit", "Qwen/Qwen-Image-Edit", SGLANG, QwenSettings, canvas=canvas_rules.qwen, forwards_per_step=2, seconds=115,
    ),
    http_editor(
        "http/qwen-image-edit-2509", "Qwen/Qwen-Image-Edit-2509", SGLANG, QwenPlusSettings, canvas=canvas_rules.qwen, forwards_per_step=2,
        seconds=80,
    ),
    http_editor(
        "http/qwen-image-edit-2511", "Qwen/Qwen-Image-Edit-2511", SGLANG, QwenPlusSettings, canvas=canvas_rules.qwen, forwards_per_step=2,
        seconds=80,
    ),
    http_editor(
        "http/omnigen2", "OmniGen2/OmniGen2", VLLM, OmniGen2Settings, canvas=canvas.omnigen2, conditioning="instruction",
        forwards_per_step=3, seconds=33,
    ),
    http_editor(
        "http/bagel", "ByteDance-Seed/BAGEL-7B-MoT", VLLM, BagelSettings, canvas=canvas.bagel, forwards_per_step=3, seconds=31,
    ),
]  # fmt: skip
