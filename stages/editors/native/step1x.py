"""Step1X-Edit v1.0, from the released weights or from what a fine-tune of them exported (`finetune.step1x`).

It works at an area of about 1024 x 1024 pixels; both branches of the guidance see the same source.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from finetune.config import SamplingConfig
from finetune.instruction_limits import control_token, too_long
from finetune.step1x.config import ConditioningConfig, Step1XConfig, Step1XSizes
from stages.editors import canvas_rules
from stages.editors.editor import Edited, EditorSpec, EditRequest, Failure
from stages.editors.native.model import APACHE
from stages.editors.places import Place
from stages.engine.config import Config

if TYPE_CHECKING:
    from stages.config import FlowConfig

NAME = "step1x-edit-v1.0"
HUB, VLM_HUB = "stepfun-ai/Step1X-Edit", "Qwen/Qwen2.5-VL-7B-Instruct"
SIDE = 1024
ADAPTER = 1
"""Counts changes of this file and of `finetune.step1x` that change edits."""


class Step1XSettings(Config):
    """Settings; the defaults are the released script's."""

    steps: int = Field(28, ge=28, description="Denoising steps; fewer make another editor")
    guidance: float = Field(6.0, gt=1, description="Strength of the classifier-free guidance")
    path: Place | None = Field(
        None, description="Directory with the released files and the folder Qwen2.5-VL-7B-Instruct; default: the Hub"
    )
    revision: str = Field("main", description="Branch, tag or commit of stepfun-ai/Step1X-Edit on the Hub")
    vlm_revision: str = Field("main", description="Branch, tag or commit of Qwen/Qwen2.5-VL-7B-Instruct on the Hub")
    denoiser: str = Field("step1x-edit-i1258.safetensors", description="File of the denoiser, by its name there or its full path")
    adapters: str | None = Field(None, description="File of LoRA adapters, in the names of kohya or diffusers")
    dtype: Literal["bf16", "fp32"] = Field("bf16", description="Precision of weights and computation")
    sizes: Step1XSizes = Field(Step1XSizes(), description="Sizes of the networks")
    conditioning: ConditioningConfig = Field(ConditioningConfig(), description="What the vision-language model reads")


class Step1XEditor:
    """The model in memory."""

    def __init__(self, settings: Step1XSettings) -> None:
        """Load the weights. Raises ``ValueError`` naming the file that is missing or another model's."""
        import torch

        from finetune.adapter_files import load_adapters
        from finetune.families import open_model
        from finetune.step1x.encoders import Step1XEncoders

        config = _config(settings)
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._sampling = SamplingConfig(steps=settings.steps, guidance=settings.guidance, side=SIDE)
        self._dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[settings.dtype]
        self._record = {"packages": _packages(), "weights": _weights(settings), "dtype": settings.dtype, "device": self._device.type}
        self._model: Any = open_model(config, self._device, self._dtype).eval()
        if settings.adapters is not None:
            load_adapters(self._model.transformer, Path(settings.adapters))
        self._encoders = Step1XEncoders.load(config, self._device)

    def edit(self, batch: Sequence[EditRequest]) -> list[Edited | Failure]:
        """Edits of one canvas. An instruction that the model cannot read in full fails."""
        refusals = [self._refusal(request) for request in batch]
        readable = [request for request, refusal in zip(batch, refusals, strict=True) if refusal is None]
        made = iter(self._sample(readable) if readable else [])
        return [refusal or next(made) for refusal in refusals]

    def save_memory(self) -> bool:
        """There is no saving."""
        return False

    def close(self) -> None:
        """Free the weights."""
        from stages.editors.native.loading import free

        self._model = self._encoders = None
        free()

    def _sample(self, batch: Sequence[EditRequest]) -> list[Edited | Failure]:
        import torch

        from finetune.sampling import sample_edits

        assert self._encoders is not None
        sources, instructions = [request.image for request in batch], [request.instruction for request in batch]
        with torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=self._dtype == torch.bfloat16):
            seeds = [request.seed for request in batch]
            images = sample_edits(self._model, self._encoders, sources, instructions, seeds, self._sampling)
        return [Edited(image, record=tuple({**self._record, "size": list(image.size)}.items())) for image in images]

    def _refusal(self, request: EditRequest) -> Failure | None:
        assert self._encoders is not None
        if not request.instruction.strip():
            return Failure("empty-instruction", f"{NAME}: the instruction is empty")
        conditioner = self._encoders.conditioner
        why = control_token(conditioner.tokenizer, request.instruction)
        why = why or too_long(conditioner.length(request.image, request.instruction), conditioner.config.max_tokens)
        return Failure("unreadable-instruction", f"{NAME}: {why}") if why else None


def _config(settings: Step1XSettings) -> Step1XConfig:
    """Where the files are; they are downloaded where needed."""
    config = Step1XConfig(directory="", denoiser=settings.denoiser, sizes=settings.sizes, conditioning=settings.conditioning)
    if settings.path is not None:
        return config.model_copy(update={"directory": settings.path})
    from huggingface_hub import snapshot_download

    from stages.editors.native.weights import first_line

    try:
        folder = snapshot_download(HUB, revision=settings.revision, allow_patterns=["vae.safetensors", settings.denoiser])
        vlm = snapshot_download(VLM_HUB, revision=settings.vlm_revision)
    except Exception as error:  # the Hub's, the network's and the cache's own kinds of errors
        raise ValueError(
            f"{NAME}: the weights {HUB} and {VLM_HUB} cannot be had from the Hub; name a directory that has them in settings.path "
            f"({first_line(error)})"
        ) from error
    return config.model_copy(update={"directory": folder, "vlm": vlm})


def _weights(settings: Step1XSettings) -> dict[str, str]:
    """What names the weights, known before anything is loaded. ValueError naming a file that is missing, damaged or another model's."""
    from stages.editors.native.weights import fingerprint_of

    files: dict[str, Path] = {}
    named: dict[str, str] = {}
    if settings.path is None:
        named = {"hub": HUB, "revision": settings.revision, "vlm": VLM_HUB, "vlm_revision": settings.vlm_revision}
    else:
        from finetune import families
        from finetune.step1x import family

        config = _config(settings)
        try:
            families.check_files(config)
        except ValueError as error:
            raise ValueError(f"{NAME}: {error}; correct settings.path or settings.denoiser") from None
        files = family.encoder_files(config) | {"denoiser": family.weight_files(config)[0]}
    if Path(settings.denoiser).is_absolute():
        files["denoiser"] = Path(settings.denoiser)
    if settings.adapters is not None:
        files["adapters"] = Path(settings.adapters)
    for path in files.values():
        if not path.is_file():
            raise ValueError(f"{NAME}: there is no file {path}; correct settings.path, settings.denoiser or settings.adapters")
    return named | ({"fingerprint": fingerprint_of(files)} if files else {})


def _packages() -> dict[str, str]:
    from stages.editors.native.versions import installed

    return installed()


def _identity(settings: Step1XSettings, flow: FlowConfig) -> dict[str, Any]:
    values = settings.model_dump(mode="json", exclude={"path", "revision", "vlm_revision", "denoiser", "adapters"})
    return values | {"weights": _weights(settings), "adapter": ADAPTER}


EDITORS = [
    EditorSpec(
        name=NAME,
        revision="main",
        licence=APACHE,
        open=lambda settings, flow: Step1XEditor(settings),
        hub=HUB,
        settings=Step1XSettings,
        canvas=canvas_rules.step1x,
        forwards_per_step=2,
        max_batch=4,
        memory_gb=50,
        seconds=22,
        seconds_source="README of stepfun-ai/Step1X-Edit: one image of 1024 x 1024 pixels on an H800",
        tested="tiny weights",
        identity=_identity,
    )
]
