"""Edits of benchmark items: one unit is a slice of items, edited by one system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from reward.inputs.decoding import decode
from reward.inputs.sample import ImageError
from stages.config import FlowConfig
from stages.editors import catalogue
from stages.editors.editing import Editing
from stages.editors.editor import Edited, EditRequest
from stages.editors.fine_tuned import CUT
from stages.engine import contracts, images
from stages.engine.ids import content_id
from stages.engine.units import UnitOutput, Work
from stages.evaluate_editor.config import EvaluateEditorConfig
from stages.evaluate_editor.items.item import Item, ItemSource, UnreadableItem
from stages.evaluate_editor.preservation import preservation
from stages.evaluate_editor.systems import System

SAMPLES = 16
"""Benchmark items whose edits are kept to look at."""


@dataclass(frozen=True)
class Piece:
    """The items ``first`` to ``first + count``, edited by a system."""

    system: System
    first: int
    count: int


def make_work(flow: FlowConfig) -> Work:
    """What a worker does with a piece: edits as tables. An editor is opened for its first piece, if possible from the one before."""
    config = flow.evaluate_editor
    assert config is not None
    opened: dict[str, Editing] = {}
    language = config.items.columns()[0][1]

    def work(piece: Piece) -> UnitOutput:
        entries = config.items.read(flow, piece.first, piece.count)
        items = [entry for entry in entries if isinstance(entry, Item)]
        cut: list[str] = []
        made = dict(zip((_key(item) for item in items), _edits(piece.system, items, flow, config, opened, cut), strict=True))
        rows = [_row(piece.system.name, entry, made.get(_key(entry))) for entry in entries]
        shown = [
            {name: row[name] for name in ("item_id", "task", "arm", "image")} | {"instruction": entry.instruction}
            for number, (entry, row) in enumerate(zip(entries, rows, strict=True), start=piece.first)
            if number < SAMPLES and isinstance(entry, Item) and row["image"] and language in ("", entry.language)
        ]
        tables = {"benchmark_edits": contracts.table("benchmark_edits", rows), "samples": contracts.table("samples", shown)}
        return UnitOutput(tables, rows_in=piece.count, rows_out=piece.count, figures={CUT: float(len(cut))} if cut else {})

    return work


def _edits(
    system: System, items: Sequence[Item], flow: FlowConfig, config: EvaluateEditorConfig, opened: dict[str, Editing], cut: list[str]
) -> list[np.ndarray | str]:
    """Per item the edit, uint8 [height, width, 3], or why there is none. ``cut`` gets the items whose instruction was not read in full."""
    match system.kind:
        case "copy":
            return [item.image for item in items]
        case "exact":
            return [item.reference for item in items if item.reference is not None]
        case "folder":
            return [_from_folder(Path(system.folder), item, config.items) for item in items]
        case "editor":
            return _edited(_editing(system, flow, opened), items, config, cut)


def _editing(system: System, flow: FlowConfig, opened: dict[str, Editing]) -> Editing:
    if system.name not in opened:
        spec = catalogue.find(system.editor, "evaluate_editor.editors")
        settings = catalogue.settings_of(spec, system.settings or {}, "evaluate_editor.editors")
        before = opened.popitem()[1] if opened else None
        if before is None or not before.become(spec, settings):
            if before is not None:
                before.close()
            try:
                before = Editing.of(spec, settings, flow)
            except ValueError as error:
                raise ValueError(catalogue.under_key(error, system.place)) from error
        opened[system.name] = before
    return opened[system.name]


def _edited(editing: Editing, items: Sequence[Item], config: EvaluateEditorConfig, cut: list[str]) -> list[np.ndarray | str]:
    from finetune.editor import noise_seed

    requests = [
        EditRequest(
            Image.fromarray(item.image), item.instruction, noise_seed(config.seed, item.item_id), config.items.dataset, item.metadata
        )
        for item in items
    ]
    results = [*editing.edit_all(requests)]
    cut += [item.item_id for item, one in zip(items, results, strict=True) if isinstance(one, Edited) and CUT in dict(one.record)]
    return [np.asarray(one.image) if isinstance(one, Edited) else f"{one.reason}: {one.message}" for one in results]


def _from_folder(folder: Path, item: Item, items: ItemSource) -> np.ndarray | str:
    paths = items.edit_paths(item)
    if paths is None:
        raise ValueError(f"evaluate_editor.edits: no layout of results is known for {type(items).__name__}; name evaluate_editor.editors")
    file = folder / paths[0]
    if not file.is_file():
        return f"there is no {paths[0]}"
    try:
        return np.asarray(decode(file.read_bytes(), what=paths[0]))
    except ImageError as error:
        return str(error)


def _row(system: str, item: Item | UnreadableItem, edit: np.ndarray | str | None) -> dict[str, Any]:
    """Row of the ``benchmark_edits`` contract."""
    facts = {"item_id": item.item_id, "language": item.language, "arm": system, "task": item.task, "subsets": list(item.subsets)}
    if isinstance(item, UnreadableItem) or not isinstance(edit, np.ndarray):
        why = item.message if isinstance(item, UnreadableItem) else str(edit)
        return facts | {"edit_id": "", "image": None, "error": why, "changed_share": None, "psnr": None, "ssim": None}
    measured = asdict(preservation(item.image, at_size_of(item.image, edit), item.reference))
    return facts | {"edit_id": edit_id(edit), "image": images.stored(images.png(edit)), "error": ""} | measured


def edit_id(edit: np.ndarray) -> str:
    """Id of an edit's pixels, uint8 [height, width, 3]."""
    return content_id("benchmark edit", *edit.shape, edit.tobytes())


def at_size_of(source: np.ndarray, edit: np.ndarray) -> np.ndarray:
    """The edit at the size at which it is judged: its source's, uint8 [height, width, 3]; bicubic, as GEdit-Bench does it."""
    height, width = source.shape[:2]
    if edit.shape[:2] == (height, width):
        return edit
    return np.asarray(Image.fromarray(edit).resize((width, height), Image.Resampling.BICUBIC))


def _key(item: Item | UnreadableItem) -> tuple[str, str]:
    return item.item_id, item.language


def image_of(row: Mapping[str, Any]) -> np.ndarray | None:
    """The edit of a row, uint8 [height, width, 3]; None where there is none."""
    return None if row["image"] is None else np.asarray(decode(row["image"]["bytes"], what=f"the edit of item {row['item_id']}"))
