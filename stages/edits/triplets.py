"""Edits of your own: a JSON Lines file of triplets, with the images beside it.

Columns: ``source``, ``instruction``, ``edited`` (image paths relative to the file's folder, absolute, or URLs) and optionally ``id``,
``task``, ``language``, ``licence``. Other columns are kept as metadata. PNG, JPEG and WebP images of any size.

The plan knows rows and the sizes of the image files. An image that changes while its size stays is noticed when shards are
written: a sample's id is made of its bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from stages import storage
from stages.config import WorldConfig
from stages.edits import language, locations
from stages.edits.slices import Edit, Slice, cut, is_text, position
from stages.edits_config import TripletEdits
from stages.units import Quarantined

DATASET = "triplets"
ROLES = ("source", "edited")
REQUIRED = ("source", "instruction", "edited")
OPTIONAL = ("id", "task", "language", "licence")


def plan(config: TripletEdits, *, seed: int, world: WorldConfig | None, unit_rows: int) -> list[Slice]:
    """Slices of parsed rows. Raises ``ValueError`` when the file cannot be read or is empty."""
    folder, _, name = config.path.rpartition("/")
    entries = _entries(config.path)
    if not entries:
        raise ValueError(f"filter.input: {config.path} has no rows; it needs one JSON object per line with source, instruction, edited")
    paths = [[locations.join(folder or ".", entry["row"][role]) for role in ROLES] if "row" in entry else [] for entry in entries]
    known = locations.sizes([path for pair in paths for path in pair])
    for entry, pair in zip(entries, paths, strict=True):
        entry["sizes"] = [known[path] for path in pair]
    return cut(DATASET, folder or ".", {"file": name}, entries, unit_rows)


def fetch(piece: Slice) -> Iterator[Edit | Quarantined]:
    """Read the images of the rows."""
    for number, entry in piece.rows:
        where = position(piece.shared["file"], number)
        if "reason" in entry:
            yield Quarantined(entry["id"], where, entry["reason"], entry["message"])
            continue
        row = entry["row"]
        source, edited = (_read(piece.location, row[role]) for role in ROLES)
        if isinstance(source, str) or isinstance(edited, str):
            faults = [f"the {role} image {fault}" for role, fault in zip(ROLES, (source, edited), strict=True) if isinstance(fault, str)]
            yield Quarantined(entry["id"], where, "missing-image", "; ".join(faults))
            continue
        yield Edit(
            row_id=entry["id"],
            position=where,
            dataset=DATASET,
            source=source,
            source_path=row["source"],
            instruction=row["instruction"],
            edited=edited,
            edited_path=row["edited"],
            language=row.get("language") or language.by_characters(row["instruction"]),
            task=row.get("task") or "",
            licence=row.get("licence") or "",
            metadata=_others(row),
        )


def _others(row: dict[str, Any]) -> str:
    others = {key: value for key, value in row.items() if key not in REQUIRED + OPTIONAL}
    return json.dumps(others, sort_keys=True, ensure_ascii=False)


def _read(folder: str, name: str) -> bytes | str:
    """Content of an image file, or what keeps it from being read."""
    try:
        return storage.read_bytes(locations.join(folder, name))
    except (OSError, ValueError) as error:
        if not locations.is_row_fault(error):
            raise
        return f"{name} cannot be read ({type(error).__name__})"


def _entries(path: str) -> list[dict[str, Any]]:
    """One entry per line that is not blank: a sound row, or the reason why it is none."""
    entries: list[dict[str, Any]] = []
    first_line: dict[str, int] = {}
    filesystem, name = storage.locate(path)
    try:
        with filesystem.open(name, "rb") as file:
            for line, data in enumerate(file, start=1):
                if data.strip():
                    entries.append(_entry(data.removeprefix(b"\xef\xbb\xbf"), line, len(entries), first_line))
    except FileNotFoundError:
        raise ValueError(f"filter.input: there is no file {path}; it should be a JSON Lines file of triplets") from None
    except (IsADirectoryError, PermissionError) as error:
        raise ValueError(f"filter.input: {path} cannot be read ({error.strerror}); it should be a JSON Lines file of triplets") from None
    return entries


def _entry(data: bytes, line: int, number: int, first_line: dict[str, int]) -> dict[str, Any]:
    """Check one line; ``first_line`` remembers ids across lines."""
    try:
        row = json.loads(data)
    except ValueError as error:
        return {"id": str(number), "reason": "bad-line", "message": f"line {line} is not JSON ({error})"}
    if not isinstance(row, dict):
        return {"id": str(number), "reason": "bad-line", "message": f"line {line} is not an object with source, instruction and edited"}
    if not is_text(row):
        return {"id": str(number), "reason": "bad-line", "message": f"line {line} has text that is not valid Unicode"}
    row_id = str(row.get("id", number))
    fault = _fault(row)
    if fault:
        return {"id": row_id, "reason": fault[0], "message": f"line {line}: {fault[1]}"}
    if "id" in row and first_line.setdefault(row_id, line) != line:
        return {"id": row_id, "reason": "duplicate-id", "message": f"line {line} has the id {row_id!r} of line {first_line[row_id]}"}
    return {"id": row_id, "row": row}


def _fault(row: dict[str, Any]) -> tuple[str, str] | None:
    instruction = row.get("instruction")
    if instruction is None or (isinstance(instruction, str) and not instruction.strip()):
        return "empty-instruction", "there is no instruction"
    for key in REQUIRED:
        if not isinstance(row.get(key), str) or not row[key]:
            return "bad-row", f"{key} should be a text, it is {row.get(key)!r}"
    for key in OPTIONAL[1:]:
        if not isinstance(row.get(key, ""), str):
            return "bad-row", f"{key} should be a text, it is {row[key]!r}"
    return None
