"""A folder of pairs: ``NAME.before.png``, ``NAME.after.png``, and the instruction in ``NAME.txt``."""

from __future__ import annotations

from collections.abc import Iterator

from stages.datasets.config import PairFolder
from stages.datasets.io import files
from stages.datasets.slices import Edit, Request, Slice, cut, position
from stages.engine import storage
from stages.engine.contracts import Quarantined

DATASET = "pair-folder"


def plan(config: PairFolder, request: Request) -> list[Slice]:
    """Slices of names. Raises ``ValueError`` when the folder has no texts."""
    folder, names = files.find(config.path, suffixes=(".txt",), what=request.key)
    return cut(DATASET, folder, {}, [name.removesuffix(".txt") for name in names], request.unit_rows)


def fetch(piece: Slice) -> Iterator[Edit | Quarantined]:
    """Read the pairs."""
    for number, name in piece.rows:
        path, where = f"{piece.location}/{name}", position(DATASET, number)
        instruction = storage.read_bytes(f"{path}.txt").decode().strip()
        if not instruction:
            yield Quarantined(name, where, "empty-instruction", "the text is empty")
            continue
        source = storage.read_bytes(f"{path}.before.png")
        edited = storage.read_bytes(f"{path}.after.png") if piece.edited else b""
        yield Edit(name, where, DATASET, source, f"{name}.before.png", instruction, edited, f"{name}.after.png")
