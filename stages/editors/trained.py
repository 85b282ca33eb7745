"""An editor that was trained here: a directory that the step finetune published, of the small editor or of a pretrained one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image
from pydantic import Field

from stages.editors import fine_tuned
from stages.editors.editor import Edited, EditorSpec, EditRequest, Licence
from stages.editors.places import Place
from stages.engine import storage
from stages.engine.config import Config

if TYPE_CHECKING:
    from finetune.editor import Editor
    from stages.config import FlowConfig
    from stages.editors.on_canvas import OnCanvas


class TrainedSettings(Config):
    """Which editor."""

    path: Place = Field("", description="Directory of the editor, e.g. runs/demo/finetune/editors/selected")
    encodings: Place = Field(
        "", description="Folder where a pretrained editor keeps its encoded sources, for others of the same base; default: none"
    )


class TrainedEditor:
    """The toy data set's small editor.

    It edits at the square size that it was trained for; an image of another size is resized to it and back, bicubic.
    """

    def __init__(self, editor: Editor) -> None:
        self.editor = editor

    def edit(self, batch: Sequence[EditRequest]) -> list[Edited]:
        """Starting noise is a function of a request's seed alone."""
        side = self.editor.config.image_size
        sources = np.stack([np.asarray(_resized(request.image, (side, side))) for request in batch])
        edited = self.editor.edit(sources, [request.instruction for request in batch], seeds=[request.seed for request in batch])
        return [Edited(_resized(Image.fromarray(output), request.image.size)) for output, request in zip(edited, batch, strict=True)]

    def save_memory(self) -> bool:
        """There is nothing to save."""
        return False

    def close(self) -> None:
        """Nothing is held but the weights."""


def _resized(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    return image if image.size == size else image.resize(size, Image.Resampling.BICUBIC)


def _directory(settings: TrainedSettings) -> Path:
    if not settings.path or not Path(settings.path).is_dir():
        raise ValueError(f"trained: settings.path: there is no directory {settings.path!r}; name one that the step finetune published")
    return Path(settings.path)


def _open(settings: TrainedSettings, flow: FlowConfig) -> TrainedEditor | OnCanvas:
    import torch

    from finetune import trained
    from finetune.editor import Editor

    torch.set_num_threads(1)  # the sums of several threads differ from machine to machine
    folder = _directory(settings)
    if trained.is_pretrained(folder):
        return fine_tuned.open_editor(folder, Path(settings.encodings) if settings.encodings else None)
    editor = Editor.from_directory(folder)
    return TrainedEditor(editor.to("cuda" if torch.cuda.is_available() else "cpu"))


def _become(editor: TrainedEditor | OnCanvas, settings: TrainedSettings) -> bool:
    from finetune import trained

    folder = _directory(settings)
    return not isinstance(editor, TrainedEditor) and trained.is_pretrained(folder) and fine_tuned.become(editor, folder)


def _identity(settings: TrainedSettings, flow: FlowConfig) -> dict[str, Any]:
    """The files, also those of a pretrained editor that the folder names; where they lie does not count."""
    from finetune import trained

    folder = _directory(settings)
    return trained.identity(folder) if trained.is_pretrained(folder) else {"files": storage.tree_hashes(folder)}


EDITORS = [
    EditorSpec(
        name="trained",
        revision="1",
        licence=Licence("that of the training data", "An editor of yours: what its base and its training data ask for.", open=False),
        open=_open,
        settings=TrainedSettings,
        identity=_identity,
        become=_become,
        max_batch=128,
        tested="embedded",
    )
]
