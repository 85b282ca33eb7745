"""ShareGPT-4o-Image's edit split as downloaded: one JSON list and tars of images (arXiv 2506.18095; 46,539 edits).

The tars' headers are scanned once, so that workers seek to their images. The list cannot be fully matched with the images (members
are missing, some do not decode): such rows are set aside with their reason.

Fingerprints are made of the records and of the tars' names and member positions. A byte that changes inside a tar while all sizes stay is
noticed when shards are written: a sample's id is made of its bytes.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterator
from typing import Any

from stages import storage, tar
from stages.config import WorldConfig
from stages.edits import language, locations
from stages.edits.slices import Edit, Slice, cut, is_text, position
from stages.edits_config import ShareGPT4oEdits
from stages.units import Quarantined

DATASET = "sharegpt4o"
RECORDS = "text_and_image_to_image.json"
TARS = "text_and_image_to_image_part_*.tar"
LICENCE = "unverified, see the card of FreedomIntelligence/ShareGPT-4o-Image; made with GPT-4o, whose terms apply to some uses"

Member = tuple[str, int, int]
"""Where an image is: name of the tar, offset of its first byte, size."""


def plan(config: ShareGPT4oEdits, *, seed: int, world: WorldConfig | None, unit_rows: int) -> list[Slice]:
    """Slices of records with the places of their images. Raises ``ValueError`` when the folder does not hold the data set."""
    folder = config.path.rstrip("/")
    files = locations.listing(folder, what="filter.input")
    if RECORDS not in files:
        raise ValueError(f"filter.input: {folder} has no {RECORDS}; download the edit split of ShareGPT-4o-Image there")
    tars = sorted(fnmatch.filter(files, TARS))
    if not tars:
        raise ValueError(f"filter.input: {folder} has no {TARS}; download the tars of the edit split beside {RECORDS}")
    records = storage.read_json(f"{folder}/{RECORDS}")
    if not isinstance(records, list) or not records:
        raise ValueError(f"filter.input: {folder}/{RECORDS} should be a JSON list of records, it is {_kind(records)}; download it again")
    members = _members(folder, tars)
    return cut(DATASET, folder, {}, [_entry(record, number, members) for number, record in enumerate(records)], unit_rows)


def fetch(piece: Slice) -> Iterator[Edit | Quarantined]:
    """Read the images of the records, each with one seek."""
    for number, entry in piece.rows:
        where = position(RECORDS, number)
        if "reason" in entry:
            yield Quarantined(entry["id"], where, entry["reason"], entry["message"])
            continue
        yield Edit(
            row_id=entry["id"],
            position=where,
            dataset=DATASET,
            source=_read(piece.location, entry["source"]),
            source_path=entry["source_name"],
            instruction=entry["instruction"],
            edited=_read(piece.location, entry["edited"]),
            edited_path=entry["edited_name"],
            language=language.by_characters(entry["instruction"]),
            task="",
            licence=LICENCE,
        )


def _entry(record: Any, number: int, members: dict[str, Member]) -> dict[str, Any]:
    """What a worker needs to read a record, or why it cannot be one."""
    if not isinstance(record, dict):
        return {"id": str(number), "reason": "bad-record", "message": f"the record should be an object, it is {_kind(record)}"}
    edited, sources, instruction = record.get("output_image"), record.get("input_image"), record.get("input_prompt")
    fault = _fault(edited, sources, instruction, members)
    if fault:
        return {"id": edited if isinstance(edited, str) else str(number), "reason": fault[0], "message": fault[1]}
    return {
        "id": edited,
        "instruction": instruction,
        "source": members[sources[0]],
        "source_name": sources[0],
        "edited": members[edited],
        "edited_name": edited,
    }


def _fault(edited: Any, sources: Any, instruction: Any, members: dict[str, Member]) -> tuple[str, str] | None:
    if not isinstance(edited, str) or not isinstance(sources, list) or not isinstance(instruction, str):
        return "bad-record", "the record needs input_prompt (text), input_image (list) and output_image (text)"
    if not instruction.strip():
        return "empty-instruction", "the record has no instruction"
    if not is_text([edited, sources, instruction]) or not all(isinstance(name, str) for name in sources):
        return "bad-record", "the record's values are not all text"
    if not sources:
        return "no-source", "the record's list of input images is empty"
    if len(sources) > 1:
        return "several-sources", f"the record has {len(sources)} input images; an edit has one source"
    absent = [name for name in (sources[0], edited) if name not in members]
    return ("missing-image", f"{' and '.join(absent)} in none of the tars") if absent else None


def _read(folder: str, place: Member) -> bytes:
    name, offset, size = place
    filesystem, path = storage.locate(f"{folder}/{name}")
    data = filesystem.cat_file(path, start=offset, end=offset + size)
    if len(data) != size:
        raise ValueError(f"{folder}/{name} became shorter while it was read; leave the data set alone during a run")
    return data


def _members(folder: str, names: list[str]) -> dict[str, Member]:
    """Place of every image by member name. Raises ``ValueError`` for a tar that was cut short and for a name in two tars."""
    members: dict[str, Member] = {}
    for name in names:
        filesystem, path = storage.locate(f"{folder}/{name}")
        try:
            with filesystem.open(path, "rb", block_size=1 << 16) as file:
                for member in tar.scan(file):
                    if member.name in members:
                        other = members[member.name][0]
                        raise ValueError(f"{folder}: {member.name} is in {other} and in {name}; remove the superfluous tar")
                    members[member.name] = (name, member.offset, member.size)
        except tar.Damaged as error:
            raise ValueError(f"{folder}/{name} {error}; download it again") from None
    return members


def _kind(value: Any) -> str:
    if isinstance(value, (list, dict)) and not value:
        return f"an empty {type(value).__name__}"
    return f"a {type(value).__name__}: {json.dumps(value)[:40]}"
