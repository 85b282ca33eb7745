"""Edits of your own: a JSON Lines file of triplets, with the images beside it.

Columns: ``source``, ``instruction``, ``edited`` (image paths relative to the file's folder, absolute, or URLs) and optionally ``id``,
``task``, ``language``, ``licence``. Other columns are kept as metadata. PNG, JPEG and WebP images of any size.

The plan reads the file once and asks for the sizes of the image files. Its memory is a span per 256 rows and, while it runs, 8 bytes per
id to find those that occur twice. Workers read the lines of their unit. Fingerprints are made of the lines and the sizes; an image that
changes while its size stays is noticed when shards are written: a sample's id is made of its bytes.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, BinaryIO, NamedTuple

from stages.config import WorldConfig
from stages.datasets import files, language, locations
from stages.datasets.blocks import Block, read_places
from stages.datasets.config import TripletEdits
from stages.datasets.digests import digest, repeated
from stages.datasets.slices import Edit, Slice, cut_blockwise, is_text, position
from stages.engine import storage
from stages.engine.contracts import Quarantined
from stages.engine.ids import ID_DIGITS

DATASET = "triplets"
ROLES = ("source", "edited")
REQUIRED = ("source", "instruction", "edited")
OPTIONAL = ("id", "task", "language", "licence")


BLOCK_ROWS = 256
"""Rows between two places of the file where reading can begin."""
BOM = b"\xef\xbb\xbf"


class Mark(NamedTuple):
    """What is known of a block: hash of its lines and of the sizes of its images, the number of its first line, and its rows whose id
    an earlier row has, with that row's line."""

    content: str
    line: int
    repeated: tuple[tuple[int, int], ...] = ()


def plan(config: TripletEdits, *, seed: int, world: WorldConfig | None, unit_rows: int) -> list[Slice]:
    """Slices of spans of lines. Raises ``ValueError`` when the file cannot be read or is empty."""
    folder, _, name = config.path.rpartition("/")
    folder = storage.absolute(folder or ("/" if config.path.startswith("/") else "."))
    ids: array[int] = array("Q")
    try:
        blocks = list(_blocks(folder, name, unit_rows, ids))
    except FileNotFoundError:
        raise ValueError(f"filter.input: there is no file {config.path}; it should be a JSON Lines file of triplets") from None
    except (IsADirectoryError, PermissionError) as error:
        reason = error.strerror
        raise ValueError(f"filter.input: {config.path} cannot be read ({reason}); it should be a JSON Lines file of triplets") from None
    if not blocks:
        raise ValueError(f"filter.input: {config.path} has no rows; it needs one JSON object per line with source, instruction, edited")
    twins = set(repeated(ids).tolist())
    return cut_blockwise(DATASET, folder, {"file": name}, _with_repeated(folder, name, blocks, twins) if twins else blocks, unit_rows)


def fetch(piece: Slice) -> Iterator[Edit | Quarantined]:
    """Read the lines and the images of the rows."""
    with files.OneOpen(piece.location) as opened:
        places = ((name, start, row) for _, (name, start, row, _) in piece.rows)
        lines = read_places(places, lambda name, start, first: islice(_lines(opened.get(name), start), first, None))
        for (number, (name, _, row, mark)), (_, after, data) in zip(piece.rows, lines, strict=True):
            entry = _entry(data, mark.line + after, number, dict(mark.repeated).get(row))
            yield _edit(piece.location, entry, position(name, number))


def _edit(folder: str, entry: dict[str, Any], where: str) -> Edit | Quarantined:
    if "reason" in entry:
        return Quarantined(entry["id"], where, entry["reason"], entry["message"])
    row = entry["row"]
    source, edited = (_read(folder, row[role]) for role in ROLES)
    if isinstance(source, str) or isinstance(edited, str):
        faults = [f"the {role} image {fault}" for role, fault in zip(ROLES, (source, edited), strict=True) if isinstance(fault, str)]
        return Quarantined(entry["id"], where, "missing-image", "; ".join(faults))
    return Edit(
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


def _lines(file: BinaryIO, start: int) -> Iterator[tuple[int, int, bytes]]:
    """Lines that are not blank from byte ``start`` on: where each begins, how many lines after the one at ``start``, and its bytes."""
    file.seek(start)
    for after, data in enumerate(file):
        if data.strip():
            yield start, after, data
        start += len(data)


def _blocks(folder: str, name: str, unit_rows: int, ids: array[int]) -> Iterator[Block]:
    """Blocks that end where units end; a digest of the id of every sound row that has one goes to ``ids``."""
    begin = line = count = 0
    content, sizes = hashlib.sha256(), locations.Sizes()
    with files.opened(f"{folder}/{name}") as file:
        for number, (start, after, data) in enumerate(_lines(file, 0)):
            if count and (count == BLOCK_ROWS or number % unit_rows == 0):
                yield Block(name, begin, count, Mark(content.hexdigest()[:ID_DIGITS], line))
                count, content = 0, hashlib.sha256()
            if not count:
                begin, line = start, after + 1
            count += 1
            content.update(data)
            row = _entry(data, after + 1, number).get("row")
            if row is not None:
                if "id" in row:
                    ids.append(digest(str(row["id"])))
                content.update(repr([sizes.of(locations.join(folder, row[role])) for role in ROLES]).encode())
    if count:
        yield Block(name, begin, count, Mark(content.hexdigest()[:ID_DIGITS], line))


def _with_repeated(folder: str, name: str, blocks: Sequence[Block], twins: set[int]) -> Iterator[Block]:
    """The blocks with their rows whose id an earlier row has; ``twins``: digests of the ids that may be such."""
    first_line: dict[str, int] = {}
    with files.opened(f"{folder}/{name}") as file:
        lines = enumerate(_lines(file, 0))
        for block in blocks:
            found = []
            for place, (number, (_, after, data)) in enumerate(islice(lines, block.rows)):
                row = _entry(data, after + 1, number).get("row", {})
                if "id" in row and digest(str(row["id"])) in twins and (seen := first_line.setdefault(str(row["id"]), after + 1)) <= after:
                    found.append((place, seen))
            yield block._replace(mark=block.mark._replace(repeated=tuple(found)))


def _entry(data: bytes, line: int, number: int, first_line: int | None = None) -> dict[str, Any]:
    """A sound row, or the reason why it is none; ``first_line``: an earlier line that has the row's id."""
    try:
        row = json.loads(data.removeprefix(BOM))
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
    if first_line is not None:
        return {"id": row_id, "reason": "duplicate-id", "message": f"line {line} has the id {row_id!r} of line {first_line}"}
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
