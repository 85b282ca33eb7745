"""ShareGPT-4o-Image's edit split as downloaded: one JSON list and tars of images (arXiv 2506.18095; 46,539 edits).

The tars' headers are scanned once, so that workers seek to their images. The list cannot be fully matched with the images (members
are missing, some do not decode): such rows are set aside with their reason.

The plan reads the list record by record. It contains the locations of each record's two images, about 50 bytes per record (a span per 256
records besides) and, while it runs, 26 bytes per member of the tars; workers read the records of their unit. Fingerprints are made of
the records and of the names of their tars and locations in them. A byte that changes inside a tar while all sizes stay is noticed when
shards are written: a sample's id is made of its bytes.
"""

from __future__ import annotations

import codecs
import fnmatch
import hashlib
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np

from stages.datasets.config import ShareGPT4oEdits
from stages.datasets.io import cells, image_files, locations
from stages.datasets.io.blocks import Block, read_addressed
from stages.datasets.io.faults import Fault
from stages.datasets.io.files import OneOpen, opened
from stages.datasets.io.tar_index import TarIndex, packed, unpacked
from stages.datasets.io.text_blocks import blocks
from stages.datasets.io.text_tables import EXACT, Bad, Record, records
from stages.datasets.slices import Edit, Request, Slice, cut_blockwise, is_text, position
from stages.engine import storage
from stages.engine.contracts import Quarantined
from stages.engine.ids import ID_DIGITS

DATASET = "sharegpt4o"
RECORDS = "text_and_image_to_image.json"
TARS = "text_and_image_to_image_part_*.tar"
EDITOR = "GPT-4o"
LICENCE = "unverified, see the card of FreedomIntelligence/ShareGPT-4o-Image; made with GPT-4o, whose terms apply to some uses"


class Mark(NamedTuple):
    """What is known of a block: hash of its records, the tars that its images are in, and the images' locations, two per record."""

    content: str
    tars: tuple[str, ...]
    locations: str


class Named(NamedTuple):
    """A record that names two images."""

    source: str
    edited: str
    instruction: str


def plan(config: ShareGPT4oEdits, request: Request) -> list[Slice]:
    """Slices of records with the locations of their images. Raises ``ValueError`` when the folder does not hold the data set."""
    folder = config.path.rstrip("/")
    files = locations.listing(folder, what=request.key)
    if RECORDS not in files:
        raise ValueError(f"{request.key}: {folder} has no {RECORDS}; download the edit split of ShareGPT-4o-Image there")
    tars = sorted(fnmatch.filter(files, TARS))
    if not tars:
        raise ValueError(f"{request.key}: {folder} has no {TARS}; download the tars of the edit split beside {RECORDS}")
    _require_list(f"{folder}/{RECORDS}", request)
    found = list(_blocks(folder, tars, request))
    if not found:
        raise ValueError(f"{request.key}: {folder}/{RECORDS} should be a JSON list of records, it is an empty list; download it again")
    return cut_blockwise(DATASET, folder, {}, found, request.unit_rows)


def fetch(piece: Slice) -> Iterator[Edit | Quarantined]:
    """Read the records, and their images, each with one seek."""
    with OneOpen(piece.location) as files:
        locations = ((name, start, row) for _, (name, start, row, _) in piece.rows)
        found = read_addressed(locations, lambda name, start, first: islice(records(files.get(name), name, start, EXACT), first, None))
        for (number, (_, _, row, mark)), (_, record) in zip(piece.rows, found, strict=True):
            of_row = unpacked(mark.locations, 2 * row, 2)
            yield _edit(piece.location, record, number, mark.tars, of_row)


def _edit(folder: str, record: Record, number: int, tars: tuple[str, ...], locations: np.ndarray) -> Edit | Quarantined:
    """``locations``: LOCATION [2], of the source and of the edited image."""
    named, where = _named(record), position(RECORDS, number)
    if isinstance(named, Fault):
        edited = record.get("output_image") if isinstance(record, dict) else None
        return Quarantined(edited if isinstance(edited, str) and is_text(edited) else str(number), where, *named)
    absent = [name for name, location in zip(named, locations, strict=False) if not location["offset"]]
    if absent:
        return Quarantined(named.edited, where, "missing-image", f"{' and '.join(absent)} in none of the tars")
    for name, location in zip(named, locations, strict=False):
        if (fault := image_files.too_large(int(location["size"]), f"the image {name}")) is not None:
            return Quarantined(named.edited, where, *fault)
    source, edited = (_read(f"{folder}/{tars[location['tar']]}", int(location["offset"]), int(location["size"])) for location in locations)
    return Edit(
        row_id=named.edited,
        position=where,
        dataset=DATASET,
        source=source,
        source_path=named.source,
        instruction=named.instruction,
        edited=edited,
        edited_path=named.edited,
        language=cells.by_characters(named.instruction),
        task="",
        licence=LICENCE,
        editor=EDITOR,
    )


def _named(record: Record, certain: bool = False) -> Named | Fault:
    """What a record names, or why it cannot be an edit. ``certain``: that its text is valid Unicode."""
    if isinstance(record, Bad):
        return Fault("bad-record", record.message)
    edited, sources, instruction = record.get("output_image"), record.get("input_image"), record.get("input_prompt")
    if not isinstance(edited, str) or not isinstance(sources, list) or not isinstance(instruction, str):
        return Fault("bad-record", "the record needs input_prompt (text), input_image (list) and output_image (text)")
    if not instruction or instruction.isspace():
        return Fault("empty-instruction", "the record has no instruction")
    if not (certain or is_text([edited, sources, instruction])) or [name for name in sources if not isinstance(name, str)]:
        return Fault("bad-record", "the record's values are not all text")
    if not sources:
        return Fault("no-source", "the record's list of input images is empty")
    if len(sources) > 1:
        return Fault("several-sources", f"the record has {len(sources)} input images; an edit has one source")
    return Named(sources[0], edited, instruction)


def _read(path: str, offset: int, size: int) -> bytes:
    filesystem, name = storage.locate(path)
    data = filesystem.cat_file(name, start=offset, end=offset + size)
    if len(data) != size:
        raise ValueError(f"{path} became shorter while it was read; leave the data set alone during a run")
    return data


def _blocks(folder: str, tars: list[str], request: Request) -> Iterator[Block]:
    """Blocks that end where units end."""
    members = TarIndex(folder, tars, what=request.key)
    for block in blocks(f"{folder}/{RECORDS}", request.unit_rows):
        names, certain = list[str](), block.is_text()
        for record in block.records:
            named = _named(record, certain)
            names += named[:2] if isinstance(named, Named) else ["", ""]
        content = hashlib.sha256(block.data).hexdigest()
        yield Block(RECORDS, block.begin, len(block.records), _mark(content, members.of(names), tars))


def _mark(content: str, locations: np.ndarray, tars: list[str]) -> Mark:
    """``locations``: LOCATION [2 per record], by the numbers of ``tars``. The mark names only those that occur: others may come and go."""
    there = locations["offset"] > 0
    numbers = locations["tar"][there]
    used = np.unique(numbers)
    locations["tar"][there] = np.searchsorted(used, numbers)
    return Mark(content[:ID_DIGITS], tuple(tars[number] for number in used), packed(locations))


def _require_list(path: str, request: Request) -> None:
    """Raise ``ValueError`` when the first character of the file shows that it is no JSON list."""
    with opened(path) as file:
        first = file.read(1 << 10).removeprefix(codecs.BOM_UTF8).lstrip()[:1].decode(errors="replace")
    if first != "[":
        begin = (first if first.isprintable() else ascii(first)) or "nothing"
        raise ValueError(f"{request.key}: {path} should be a JSON list of records, it begins with {begin}; download it again")
