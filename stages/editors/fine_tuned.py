"""A pretrained editor as the step finetune published it: the base, or an arm."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from stages.editors.canvas_rules import MAX_ASPECT
from stages.editors.editor import CanvasRule, Edited, EditRequest
from stages.editors.encodings import Encodings
from stages.editors.on_canvas import OnCanvas

if TYPE_CHECKING:
    from finetune.editing_model import EditingModel, Encoders
    from finetune.library_editors.config import PretrainedEditorConfig


CUT = "cut"
"""In the record of an edit: how much longer its instruction is than what was read of it."""


def open_editor(folder: Path, encodings: Path | None) -> OnCanvas:
    """Load both halves: on the GPU in bf16, or on the CPU in float32. encodings: see `stages.editors.encodings`.

    It works at its family's working size for the side that it was trained at. Raises ``ValueError`` naming the file that is missing,
    damaged, or another than in training.
    """
    import torch

    from finetune import families

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    config, model = _trained_half(folder)
    encoders = families.open_encoders(config, device)
    kept = Encodings(encodings, encoders, families.encoders_identity(config), config.sampling)
    return OnCanvas(FineTunedEditor(folder, config, model, encoders, kept), canvas_rule(encoders, config.sampling.side))


def become(editor: OnCanvas, folder: Path) -> bool:
    """Make an editor that `open_editor` gave that of another folder, keeping its frozen half; see `EditorSpec`."""
    assert isinstance(editor.editor, FineTunedEditor)
    return editor.editor.become(folder)


def _trained_half(folder: Path) -> tuple[PretrainedEditorConfig, Any]:
    import torch

    from finetune.trained import open_trained

    on_gpu = torch.cuda.is_available()
    return open_trained(folder, torch.device("cuda" if on_gpu else "cpu"), torch.bfloat16 if on_gpu else torch.float32)


def canvas_rule(encoders: Encoders, side: int) -> CanvasRule:
    """The family's working size for a source, or where that has another working size itself, that one, and so on.

    A source that is very long is padded on it, as by the rules of `stages.editors.canvas_rules`.
    """

    def rule(width: int, height: int) -> tuple[int, int]:
        longest = round(min(width, height) * MAX_ASPECT)
        found, seen = (min(width, longest), min(height, longest)), set()
        while found not in seen:
            seen.add(found)
            found = encoders.working_size(*found, side)
        return found

    return rule


class FineTunedEditor:
    """An editor that is loaded; all sources of a batch have one working size, which is their own."""

    def __init__(self, folder: Path, config: PretrainedEditorConfig, model: Any, encoders: Encoders, encodings: Encodings) -> None:
        self._folder, self._config, self._model = folder, config, cast("EditingModel", model)
        self._encoders, self._encodings = encoders, encodings

    def edit(self, batch: Sequence[EditRequest]) -> list[Edited]:
        """Noise is a function of a request's seed alone. Raises ``ValueError`` for an instruction that the family cannot read.

        One that is too long is cut, as the family's own code does, and the edit's record says so.
        """
        from finetune.sampling import sample_encoded

        encoded = [self._encodings.of(request.image, request.instruction) for request in batch]
        seeds = [request.seed for request in batch]
        images = sample_encoded(self._model, self._encoders.decode, encoded, seeds, self._config.sampling)
        cut = [self._encoders.unread(request.image, request.instruction) for request in batch]
        return [Edited(image, record=((CUT, why),) if why else ()) for image, why in zip(images, cut, strict=True)]

    def become(self, folder: Path) -> bool:
        """Make it the editor of another folder that has the same frozen half; False, with nothing changed, where it has another.

        Weights of the trained half stay, too, where only adapters differ.
        """
        from finetune import families
        from finetune.trained import exchange_learnt, read_config
        from stages.editors.native.loading import free

        config = read_config(folder)
        same = [(families.encoders_identity(one), one.sampling) for one in (self._config, config)]
        if same[0] != same[1]:
            return False
        if not exchange_learnt(cast(Any, self._model), self._folder, folder):
            self._model = cast("EditingModel", None)
            free()
            self._model = cast("EditingModel", _trained_half(folder)[1])
        self._folder, self._config = folder, config
        return True

    def save_memory(self) -> bool:
        """There is no saving."""
        return False

    def close(self) -> None:
        """Free the weights."""
        del self._model, self._encoders, self._encodings
