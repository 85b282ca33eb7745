"""A pretrained editor as the step finetune published it: the base, or an arm."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from stages.editors.canvas_rules import MAX_ASPECT
from stages.editors.editor import CanvasRule, Edited, EditRequest
from stages.editors.on_canvas import OnCanvas

if TYPE_CHECKING:
    from finetune.editing_model import EditingModel, Encoders
    from finetune.library_editors.config import PretrainedEditorConfig


def open_editor(folder: Path) -> OnCanvas:
    """Load both halves: on the GPU in bf16, or on the CPU in float32.

    It works at its family's working size for the side that it was trained at. Raises ``ValueError`` naming the file that is missing,
    damaged, or another than in training.
    """
    import torch

    from finetune import families
    from finetune.trained import open_trained

    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda" if on_gpu else "cpu")
    config, model = open_trained(folder, device, torch.bfloat16 if on_gpu else torch.float32)
    encoders = families.open_encoders(config, device)
    return OnCanvas(FineTunedEditor(config, model.eval(), encoders), canvas_rule(encoders, config.sampling.side))


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

    def __init__(self, config: PretrainedEditorConfig, model: Any, encoders: Encoders) -> None:
        self._config, self._model, self._encoders = config, cast("EditingModel", model), encoders

    def edit(self, batch: Sequence[EditRequest]) -> list[Edited]:
        """Noise is a function of a request's seed alone. Raises ``ValueError`` for an instruction that the family cannot read."""
        from finetune.sampling import sample_edits

        sources, instructions = [request.image for request in batch], [request.instruction for request in batch]
        seeds = [request.seed for request in batch]
        images = sample_edits(self._model, self._encoders, sources, instructions, seeds, self._config.sampling)
        return [Edited(image) for image in images]

    def save_memory(self) -> bool:
        """There is no saving."""
        return False

    def close(self) -> None:
        """Free the weights."""
        del self._model, self._encoders
