"""What an editor is: a model, or a program, that turns a source image and an instruction into an edit.

Three users call the same interface: generate (candidates), evaluate-editor (benchmark items) and training (sample grids). What every
editor shares is around it, not in it: canvas, batches, seeds, failures, licences. :mod:`stages.editors.catalogue` lists all editors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from stages.engine.config import Config

if TYPE_CHECKING:
    from PIL import Image

    from stages.config import FlowConfig

CanvasRule = Callable[[int, int], tuple[int, int]]
"""From the (width, height) of a source in pixels to those of the canvas on which the editor works."""


@dataclass(frozen=True)
class EditRequest:
    """One edit to make. ``image``: RGB, of the editor's canvas where its spec has one.

    ``seed`` alone decides what is random. ``dataset`` and ``metadata`` are the source's; only an editor that belongs to that data set
    reads them.
    """

    image: Image.Image
    instruction: str
    seed: int
    dataset: str = ""
    metadata: str = "{}"


@dataclass(frozen=True)
class Edited:
    """An edit. ``image``: RGB, of the request's size. ``metadata``: JSON that only plug-ins of the same data set read. ``record``: plain
    JSON values that say how it was made, such as package versions or the sizes inside the model."""

    image: Image.Image
    metadata: str = "{}"
    record: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Failure:
    """An edit that could not be made. ``reason``: a short code, e.g. ``refused``; ``message``: a sentence."""

    reason: str
    message: str


class Editor(Protocol):
    """An editor that is loaded, in the process that opened it."""

    def edit(self, batch: Sequence[EditRequest]) -> Sequence[Edited | Failure]:
        """One result per request, in their order; not more requests than the spec's ``max_batch``, all of one canvas.

        The same request gives the same image on the same kind of device at the same batch size. A ``torch.OutOfMemoryError`` makes the
        caller try smaller batches; another exception fails every edit of the batch that fails alone, too.
        """
        ...

    def save_memory(self) -> bool:
        """Turn on the next saving of memory that leaves images equal up to rounding; False where there is none left."""
        ...

    def close(self) -> None:
        """Free memory and processes."""
        ...


@dataclass(frozen=True)
class Licence:
    """Terms of an editor's weights. ``name``: SPDX name, or the name that the licence has. ``terms``: a sentence on what it asks of a user.

    ``open``: whether anybody may use the edits to train models, also commercially. Others must be accepted in the configuration.
    """

    name: str
    terms: str = ""
    open: bool = True


@dataclass(frozen=True)
class EditorSpec:
    """What is known of an editor before it is loaded.

    ``hub``: id of its weights on the Hub, with ``revision``; a program has no id. ``settings``: its typed settings, with its authors'
    values as defaults; the configuration changes single ones. ``canvas``: None where any size is edited as it is.
    ``forwards_per_step``: of the denoiser, at the default settings. ``conditioning``: what the encoded condition depends on, so what
    may be cached by it. ``one_instruction``: a batch has one instruction, because texts of other lengths would need a mask.
    ``seeds_globally``: it draws from the global generators, too: these are seeded per edit and the batch is one.
    ``memory_gb``: of one GPU, 0 where it needs none. ``seconds``: per edit of one megapixel on one GPU, with ``seconds_source`` saying
    who measured or estimated them. ``tested``: what of this adapter was run by its authors: ``embedded`` (all of it), ``tiny weights``
    (random ones), ``real weights``, or ``not run``.

    ``open(settings, flow)`` loads it. ``identity(settings, flow)`` is the plain JSON value that its edits depend on beside the revision.
    ``missing(settings)`` is a sentence that says what is not installed and what brings it, empty where nothing is missing. The first two
    raise ``ValueError`` naming the key that is wrong. ``unready(settings)`` is such a sentence about what must run elsewhere, such as a
    server; it is asked before a run begins, and may take seconds. ``become(editor, settings)`` makes an editor that ``open`` gave that of
    other settings, keeping what both have in memory; it returns False, with nothing changed, where it cannot.
    """

    name: str
    revision: str
    licence: Licence
    open: Callable[[Any, FlowConfig], Editor]
    hub: str = ""
    settings: type[Config] = Config
    canvas: CanvasRule | None = None
    forwards_per_step: int = 1
    conditioning: Literal["instruction", "image and instruction"] = "image and instruction"
    max_batch: int = 1
    one_instruction: bool = False
    seeds_globally: bool = False
    memory_gb: float = 0.0
    seconds: float = 0.0
    seconds_source: str = ""
    tested: Literal["embedded", "tiny weights", "real weights", "not run"] = "not run"
    identity: Callable[[Any, FlowConfig], Any] = lambda settings, flow: settings.model_dump(mode="json")
    missing: Callable[[Any], str] = lambda settings: ""
    unready: Callable[[Any], str] = lambda settings: ""
    become: Callable[[Any, Any], bool] = lambda editor, settings: False
