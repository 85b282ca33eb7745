"""OmniGen2, BAGEL, Ovis-U1 and Step1X-Edit v1.1 and v1.2: four environments that no single one can replace.

A line for another editor of this kind: an ``Environment``, a bridge, a settings class, and a call of :func:`process_editor`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.editors import canvas_rules
from stages.editors.editor import CanvasRule, EditorSpec, Licence
from stages.editors.licences import APACHE
from stages.editors.process import canvas
from stages.editors.process.environment import LOCKS, Checkout, Environment, interpreter
from stages.editors.process.settings import (
    PLACES,
    BagelSettings,
    OmniGen2Settings,
    OvisU1Settings,
    ProcessSettings,
    Step1XEdit11Settings,
    Step1XEdit12Settings,
)

if TYPE_CHECKING:
    from stages.config import FlowConfig
    from stages.editors.editor import Editor

BRIDGES = Path(__file__).parent / "bridges"
PYTORCH = "PyTorch BSD-3-Clause, its CUDA libraries NVIDIA's own licence, transformers and diffusers Apache-2.0"
ESTIMATE = "estimated from its operations at 400 TFLOP/s"

OMNIGEN2 = Environment(
    name="omnigen2",
    lock=LOCKS / "omnigen2.txt",
    python="3.11",
    licences=f"{PYTORCH}; the checkout Apache-2.0",
    packages_gb=6,
    checkout=Checkout(
        "https://github.com/VectorSpaceLab/OmniGen2",
        "0f72fa92564d9f8ba76f53fcc3c05aca2372458f",
        "omnigen2/pipelines/omnigen2/pipeline_omnigen2.py",
    ),
)
FLASH_ATTENTION = (
    "flash-attn 2, which its model code imports: a wheel for your CUDA and this PyTorch from the releases of "
    "https://github.com/Dao-AILab/flash-attention, or `pip install flash-attn --no-build-isolation` where CUDA's compiler is installed",
)
BAGEL = Environment(
    name="bagel",
    lock=LOCKS / "bagel.txt",
    python="3.11",
    licences=f"{PYTORCH}; flash-attn BSD-3-Clause; the checkout Apache-2.0",
    packages_gb=6,
    checkout=Checkout("https://github.com/ByteDance-Seed/Bagel", "056b5fd51a88c1eb4547318609e25d40080fcf87", "inferencer.py"),
    by_hand=FLASH_ATTENTION,
)
OVIS_U1 = Environment(
    name="ovis-u1",
    lock=LOCKS / "ovis-u1.txt",
    python="3.11",
    licences=f"{PYTORCH}; flash-attn BSD-3-Clause; the checkout Apache-2.0; code in the weights' repository Apache-2.0",
    packages_gb=6,
    checkout=Checkout("https://github.com/AIDC-AI/Ovis-U1", "dccf5eb36a725dba482ea506b586362ee2b0a01e", "test_img_edit.py"),
    by_hand=FLASH_ATTENTION,
)
STEP1X_EDIT = Environment(
    name="step1x-edit",
    lock=LOCKS / "step1x-edit.txt",
    python="3.11",
    licences=f"{PYTORCH}; among them a fork of diffusers that only its author maintains, Apache-2.0",
    packages_gb=6,
)


def process_editor(
    name: str,
    environment: Environment,
    bridge: Path,
    settings: type[ProcessSettings],
    hub: str,
    canvas: CanvasRule | None,
    licence: Licence = APACHE,
    fixed: tuple[tuple[str, Any], ...] = (),
    revision: str = "main",
    **known: Any,
) -> EditorSpec:
    """An editor whose model ``bridge`` loads in that environment.

    ``fixed``: what the bridge gets beside the settings. ``known``: more fields of the spec.
    """

    def own(chosen: ProcessSettings) -> tuple[str | None, str | None]:
        return chosen.python, chosen.checkout

    def missing(chosen: ProcessSettings) -> str:
        return environment.missing(name, *own(chosen))

    def opened(chosen: ProcessSettings, flow: FlowConfig) -> Editor:
        from stages.editors.process.editor import ProcessEditor

        if lack := missing(chosen):
            raise ValueError(f"editor {name}: {lack}")
        python, checkout = own(chosen)
        if environment.checkout is not None and checkout is None:
            checkout = str(environment.folder / "checkout")
        load = chosen.model_dump(mode="json", exclude=PLACES) | {"hub": hub, "revision": revision, "checkout": checkout} | dict(fixed)
        runs = python or str(interpreter(environment.folder))
        return ProcessEditor(name, runs, bridge, load, chosen.start_seconds, chosen.edit_seconds)

    def identity(chosen: ProcessSettings, flow: FlowConfig) -> dict[str, Any]:
        lock = environment.lock_hash if chosen.python is None else ""
        return chosen.model_dump(mode="json", exclude=PLACES) | {"lock": lock}

    return EditorSpec(
        name=name,
        revision=revision,
        licence=licence,
        open=opened,
        hub=hub,
        settings=settings,
        canvas=canvas,
        seeds_globally=True,
        identity=identity,
        missing=missing,
        **known,
    )


def _step1x(version: str, settings: type[ProcessSettings], hub: str, seconds: float, source: str) -> EditorSpec:
    return process_editor(
        f"step1x-edit-v{version}",
        STEP1X_EDIT,
        BRIDGES / "step1x_edit.py",
        settings,
        hub,
        canvas_rules.step1x,
        fixed=(("version", version),),
        forwards_per_step=2,
        memory_gb=50,
        seconds=seconds,
        seconds_source=source,
    )


EDITORS = [
    process_editor(
        "omnigen2",
        OMNIGEN2,
        BRIDGES / "omnigen2.py",
        OmniGen2Settings,
        "OmniGen2/OmniGen2",
        canvas.omnigen2,
        forwards_per_step=3,
        conditioning="instruction",
        tested="tiny weights",
        memory_gb=17,
        seconds=33,
        seconds_source=ESTIMATE,
    ),
    process_editor(
        "bagel",
        BAGEL,
        BRIDGES / "bagel.py",
        BagelSettings,
        "ByteDance-Seed/BAGEL-7B-MoT",
        canvas.bagel,
        forwards_per_step=3,
        memory_gb=32,
        seconds=31,
        seconds_source=ESTIMATE,
    ),
    process_editor(
        "ovis-u1",
        OVIS_U1,
        BRIDGES / "ovis_u1.py",
        OvisU1Settings,
        "ATH-MaaS/Ovis-U1-3B",
        canvas.ovis_u1,
        forwards_per_step=3,
        memory_gb=12,
        seconds=13,
        seconds_source=ESTIMATE,
    ),
    _step1x("1.1", Step1XEdit11Settings, "stepfun-ai/Step1X-Edit-v1p1-diffusers", 22, "authors, H800, 28 steps"),
    _step1x("1.2", Step1XEdit12Settings, "stepfun-ai/Step1X-Edit-v1p2", 39, "the authors' figure for v1.1 on an H800, scaled to 50 steps"),
]
ENVIRONMENTS = {"omnigen2": OMNIGEN2, "bagel": BAGEL, "ovis-u1": OVIS_U1, "step1x-edit-v1.1": STEP1X_EDIT, "step1x-edit-v1.2": STEP1X_EDIT}
"""By editor."""
