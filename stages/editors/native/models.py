"""The editors that run in process. Another one of a family here is a :class:`NativeModel` with its own name, also in a package of yours."""

from __future__ import annotations

from stages.editors import canvas_rules
from stages.editors.licences import FLUX_DEV
from stages.editors.native.editor_of import editor_of
from stages.editors.native.klein import KLEIN
from stages.editors.native.kontext import KONTEXT
from stages.editors.native.longcat import LONGCAT
from stages.editors.native.model import NativeModel
from stages.editors.native.qwen import QWEN, QWEN_PLUS

ESTIMATE = "estimated: operations of the denoiser counted by torch, at 400 TFLOP/s in bf16"

FLUX_KONTEXT = NativeModel(
    name="flux-kontext",
    family=KONTEXT,
    hub="black-forest-labs/FLUX.1-Kontext-dev",
    canvas=canvas_rules.kontext,
    steps=28,
    guidance=2.5,
    negative_prompt=None,
    memory_gb=36,
    seconds=12,
    seconds_source=ESTIMATE,
    licence=FLUX_DEV,
)
QWEN_IMAGE_EDIT = NativeModel(
    name="qwen-image-edit",
    family=QWEN,
    hub="Qwen/Qwen-Image-Edit",
    canvas=canvas_rules.qwen,
    steps=50,
    guidance=4.0,
    negative_prompt=" ",
    memory_gb=60,
    seconds=50,
    seconds_source=ESTIMATE,
)
QWEN_IMAGE_EDIT_2509 = NativeModel(
    name="qwen-image-edit-2509",
    family=QWEN_PLUS,
    hub="Qwen/Qwen-Image-Edit-2509",
    canvas=canvas_rules.qwen,
    steps=40,
    guidance=4.0,
    negative_prompt=" ",
    memory_gb=60,
    seconds=34,
    seconds_source=ESTIMATE,
)
QWEN_IMAGE_EDIT_2511 = NativeModel(
    name="qwen-image-edit-2511",
    family=QWEN_PLUS,
    hub="Qwen/Qwen-Image-Edit-2511",
    canvas=canvas_rules.qwen,
    steps=40,
    guidance=4.0,
    negative_prompt=" ",
    memory_gb=60,
    seconds=34,
    seconds_source=ESTIMATE,
)
FLUX2_KLEIN_4B_BASE = NativeModel(
    name="flux2-klein-4b-base",
    family=KLEIN,
    hub="black-forest-labs/FLUX.2-klein-base-4B",
    canvas=canvas_rules.klein,
    steps=50,
    guidance=4.0,
    negative_prompt="",
    memory_gb=20,
    seconds=19,
    seconds_source=ESTIMATE,
)
FLUX2_KLEIN_4B = NativeModel(
    name="flux2-klein-4b",
    family=KLEIN,
    hub="black-forest-labs/FLUX.2-klein-4B",
    canvas=canvas_rules.klein,
    steps=4,
    guidance=None,
    negative_prompt=None,
    memory_gb=20,
    seconds=0.8,
    seconds_source=ESTIMATE,
)
LONGCAT_IMAGE_EDIT = NativeModel(
    name="longcat-image-edit",
    family=LONGCAT,
    hub="meituan-longcat/LongCat-Image-Edit",
    canvas=canvas_rules.longcat,
    steps=50,
    guidance=4.5,
    negative_prompt="",
    memory_gb=32,
    seconds=23,
    seconds_source=ESTIMATE,
)
FIRERED_IMAGE_EDIT = NativeModel(
    name="firered-image-edit",
    family=QWEN_PLUS,
    hub="FireRedTeam/FireRed-Image-Edit-1.1",
    canvas=canvas_rules.qwen,
    steps=40,
    guidance=4.0,
    negative_prompt=" ",
    memory_gb=60,
    seconds=34,
    seconds_source=ESTIMATE,
)

MODELS = (
    FLUX_KONTEXT, QWEN_IMAGE_EDIT, QWEN_IMAGE_EDIT_2509, QWEN_IMAGE_EDIT_2511,
    FLUX2_KLEIN_4B_BASE, FLUX2_KLEIN_4B, LONGCAT_IMAGE_EDIT, FIRERED_IMAGE_EDIT,
)  # fmt: skip
EDITORS = [editor_of(model) for model in MODELS]
