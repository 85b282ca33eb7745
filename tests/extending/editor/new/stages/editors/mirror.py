"""An editor for any image: it mirrors it."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import ImageOps

from stages.editors.editor import Edited, EditorSpec, EditRequest, Licence


class Mirror:
    """Left is right and, with an odd seed, top is bottom."""

    def edit(self, batch: Sequence[EditRequest]) -> list[Edited]:
        """The mirrored images."""
        mirrored = [ImageOps.mirror(request.image) for request in batch]
        return [Edited(ImageOps.flip(image) if request.seed % 2 else image) for image, request in zip(mirrored, batch, strict=True)]

    def save_memory(self) -> bool:
        """There is nothing to save."""
        return False

    def close(self) -> None:
        """Nothing is held."""


EDITORS = [EditorSpec("mirror", "1", Licence("MIT"), lambda settings, flow: Mirror(), max_batch=8)]
