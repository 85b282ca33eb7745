"""The training JSON of the public EditReward code (its TRAIN_README), as ``pipeline export pairs --format reference-json`` writes it too.

A JSON list with a record per pair: ``path_src``, ``prompt``, ``path1`` and ``path2`` (paths of images), ``model1`` and ``model2``, and
scores. An edit is in every pair in which it was compared. It is named by ``path_src``, ``prompt`` and its own path, and read once.

The plan reads the JSON a record at a time; its memory is an entry per edit with the names of its images. Workers read images only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from stages.datasets import published_ids
from stages.datasets.config import ReferenceJsonEdits
from stages.datasets.io import cells, files, locations, text_blocks
from stages.datasets.io.faults import Fault
from stages.datasets.io.text_tables import Bad, Record
from stages.datasets.slices import Edit, Request, Slice, cut, is_text, position
from stages.engine import storage
from stages.engine.contracts import Quarantined

DATASET = "reference-json"
SHARED = ("path_src", "prompt")
SIDES = (("path1", "model1"), ("path2", "model2"))
NAMED = (*SHARED, *(path for path, _ in SIDES))
"""Keys whose values are texts."""

Entry = tuple[str, str, str, str, str, str, str]
"""File, split, path_src, prompt, path and model of an edit, and why the record cannot be read if so."""


def plan(config: ReferenceJsonEdits, request: Request) -> list[Slice]:
    """Slices of edits. Raises ``ValueError`` when a file is missing, is no JSON list, lacks a key, or has no record."""
    folder, (name,) = files.one(config.path, what=request.key)
    held_out = config.validation
    given = [(name, "train" if held_out else "")]
    if held_out:
        other, (name,) = files.one(held_out, what=f"{request.key}.validation")
        if storage.absolute(other) != storage.absolute(folder):
            raise ValueError(f"{request.key}.validation: {held_out} is not in the folder of {config.path}; put both files into one folder")
        given.append((name, "validation"))
    pieces = cut(DATASET, folder, {"licence": config.licence}, _entries(folder, given, request.key), request.unit_rows)
    if not pieces:
        raise ValueError(f"{request.key}: {config.path} has no records")
    return [replace(piece, images=storage.absolute(config.images)) for piece in pieces] if config.images else pieces


def _entries(folder: str, given: Sequence[tuple[str, str]], key: str) -> Iterator[Entry]:
    """Edits in the order in which records name them first. ``given``: files with their splits."""
    seen: set[tuple[str, str, str]] = set()
    for name, split in given:
        before = 0
        for block in text_blocks.blocks(f"{folder}/{name}"):
            if not before:
                _check_keys(f"{folder}/{name}", block.records, key)
            certain = block.is_text()
            for number, record in enumerate(block.records, before):
                fault = _fault(record, certain)
                if fault or not isinstance(record, dict):
                    yield name, split, "", "", "", "", f"record {number}: {fault}"
                    continue
                source, prompt = record["path_src"], record["prompt"]
                for path, model in SIDES:
                    edit = (source, prompt, record[path])
                    if edit not in seen:
                        seen.add(edit)
                        yield name, split, *edit, cells.text(record.get(model)), ""
            before += len(block.records)


def fetch(piece: Slice) -> Iterator[Edit | Quarantined]:
    """Read the images of the edits."""
    base = piece.images or piece.location
    for number, (file, split, source_path, prompt, path, model, fault) in piece.rows:
        where = position(file, number)
        if fault:
            yield Quarantined(str(number), where, "bad-record", fault)
            continue
        instruction, source = cells.instruction(prompt), cells.image(source_path, base, "source")
        edited = cells.image(path, base, "edited") if piece.edited else (b"", None)
        faults = [found for found in (instruction, source, edited) if isinstance(found, Fault)]
        if faults:
            yield Quarantined(path, where, faults[0].reason, "; ".join(fault.message for fault in faults))
            continue
        assert not isinstance(source, Fault) and not isinstance(edited, Fault)
        yield Edit(
            row_id=path,
            position=where,
            dataset=DATASET,
            source=source[0],
            source_path=source[1],
            instruction=prompt,
            edited=edited[0],
            edited_path=edited[1],
            language=cells.by_characters(prompt),
            licence=piece.shared["licence"],
            split=split,
            editor=model,
            published_id=published_ids.of_reference_json(source_path, prompt, path).candidate,
            metadata=json.dumps({"model": model}, ensure_ascii=False),
        )


def image_files(piece: Slice) -> Iterator[str]:
    """Paths of the image files that the rows name, in their order."""
    base = piece.images or piece.location
    for _, (_, _, source, _, edited, _, fault) in piece.rows:
        if not fault:
            yield from (locations.join(base, name) for name in (source, edited))


def _check_keys(path: str, first: Sequence[Record], key: str) -> None:
    """Raise ``ValueError`` where none of the first records has a key: then the file is of another layout."""
    there = text_blocks.columns(path, first)
    missing = [column for column in (*SHARED, *(column for side in SIDES for column in side)) if column not in there]
    if missing:
        raise ValueError(f"{key}: {path} has no key {missing[0]}, which the training JSON has; it has {', '.join(there) or 'none'}")


def _fault(record: Record, certain: bool) -> str:
    """``certain``: that its text is valid Unicode."""
    if isinstance(record, Bad):
        return record.message
    if not certain and not is_text(record):
        return "it has text that is not valid Unicode"
    for key in NAMED:
        value = record.get(key)
        if not isinstance(value, str) or not value:
            return f"{key} should be a text, it is {value!r}"
    return ""
