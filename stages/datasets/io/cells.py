"""Cells of a row: an image as bytes, as a path or as the Hub's struct; a text, or a list of texts with the same meaning."""

from __future__ import annotations

import math
import re
from typing import Any

from stages.datasets.io import image_files, locations
from stages.datasets.io.faults import Fault

CHINESE_CHARACTER = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
"""CJK unified ideographs, their extension A and the compatibility block."""


def image(cell: Any, folder: str, role: str) -> tuple[bytes, str | None] | Fault:
    """Encoded image and its name where it has one. Paths are relative to ``folder``, absolute, or URLs; a list must have one entry."""
    if isinstance(cell, (list, tuple)):
        if len(cell) > 1:
            return Fault("several-images", f"the row has {len(cell)} {role} images; an edit has one")
        cell = cell[0] if cell else None
    name = cell
    if isinstance(cell, dict):
        data, name = cell.get("bytes"), cell.get("path")
        if data and isinstance(data, bytes):
            return data, name if name and isinstance(name, str) else None
        if data:
            return Fault("bad-row", f"the bytes of the {role} image are no bytes but {str(data)[:40]!r}; give its path, or use Parquet")
    if isinstance(name, bytes) and name:
        return name, None
    if not name:
        return Fault("missing-image", f"the row has no {role} image")
    if not isinstance(name, str):
        return Fault("bad-row", f"the {role} image should be a path or image bytes, it is {str(name)[:40]!r}")
    data = image_files.read(locations.join(folder, name), f"the {role} image {name}")
    return data if isinstance(data, Fault) else (data, name)


def path(cell: Any) -> str | None:
    """The path in a cell of an image, if it has one: what :func:`image` reads where there are no bytes."""
    entry = cell[0] if isinstance(cell, (list, tuple)) and len(cell) == 1 else cell
    name = entry.get("path") if isinstance(entry, dict) and not entry.get("bytes") else entry
    return name if isinstance(name, str) and name else None


def in_id_folder(cell: Any) -> Any:
    """The path of an image in the folder that its name begins with: ``12/12-input.png`` of ``12-input.png``."""
    return f"{cell.partition('-')[0]}/{cell}" if isinstance(cell, str) and cell else cell


def instruction(cell: Any) -> tuple[str, list[str]] | Fault:
    """The instruction, and further wordings where the cell contains several; the first that is not blank is the instruction."""
    cells = list(cell) if isinstance(cell, (list, tuple)) else [cell]
    if any(entry is not None and not isinstance(entry, str) for entry in cells):
        return Fault("bad-row", f"the instruction should be a text, it is {str(cell)[:40]!r}")
    texts = [entry for entry in cells if entry and entry.strip()]
    return (texts[0], texts[1:]) if texts else Fault("empty-instruction", "there is no instruction")


def plain(value: Any) -> Any:
    """A value of a column that is passed on, as JSON that every reader takes: times, decimals and infinite numbers are written out, and
    characters that are no Unicode become question marks, in keys escapes, so that different keys stay different."""
    if isinstance(value, dict):
        return {str(key).encode(errors="backslashreplace").decode(): plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    known = value is None or isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value))
    return value if known else str(value)


def text(cell: Any) -> str:
    """A label such as a task: numbers are written out, absent ones are empty."""
    return "" if cell is None else str(cell)


def by_characters(instruction: str) -> str:
    """Language of an instruction where the data set does not name it: ``cn`` when there is a Chinese character, else ``en``.

    This is a rule for the two languages of the benchmarks, not a detector: Japanese written with such characters counts as ``cn``, every
    other language as ``en``.
    """
    return "cn" if CHINESE_CHARACTER.search(instruction) else "en"
