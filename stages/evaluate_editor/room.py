"""Whether the disk has room for the encoded sources that trained editors of one base share (`stages.editors.encodings`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from finetune.config import EditorConfig
from stages.config import FlowConfig
from stages.engine.disk import check_room
from stages.evaluate_editor.config import EvaluateEditorConfig
from stages.evaluate_editor.systems import TRAINED

if TYPE_CHECKING:
    from finetune.library_editors.config import PretrainedEditorConfig


def check_encodings(folder: Path, flow: FlowConfig, config: EvaluateEditorConfig) -> None:
    """Raise ``ValueError`` where the disk of the folder has too little for what is not kept there yet."""
    from finetune.estimate import bytes_per_source

    items = config.items.count(flow)
    bases = {editor.model_dump_json(exclude={"denoiser"}): editor for editor in _pretrained(flow, config)}
    needed = items * sum(bytes_per_source(editor) for editor in bases.values())
    kept = sum(path.stat().st_size for path in folder.glob("*"))
    check_room(
        folder,
        needed - kept,
        f"encoded sources of {items:,} benchmark items",
        "choose another --run directory or fewer items; they are removed when all edits are made",
    )


def _pretrained(flow: FlowConfig, config: EvaluateEditorConfig) -> Iterator[PretrainedEditorConfig]:
    from finetune import trained

    if flow.finetune is not None and not isinstance(flow.finetune.editor, EditorConfig):
        yield flow.finetune.editor
    for entry in config.editors:
        folder = Path(entry.settings.get("path", ""))
        if entry.editor == TRAINED and trained.is_pretrained(folder):
            yield trained.read_config(folder)
