"""Triplets in webdataset's layout, such as this program's own shards: tars in which the members of a sample follow each other.

A member's name is its sample's key and, after the first dot of its base name, its field: ``0001.source.png`` has the field ``source.png``.
A configured field matches the field of that name, with or without an extension. The text is a JSON object (with ``instruction`` and
optionally ``language``, ``task``, ``licence``; the rest, with ``editor`` and ``seed``, is kept as metadata), or plain text that is the
instruction. With several fields of edited images a sample is as many rows; ``editor`` and ``seed`` may then be lists in the order of the
fields, of which each row's metadata has its own, and where the text names no editor the field does.

The plan scans the headers of the tars once; its memory is a span per 64 samples and, while it runs, 8 bytes per sample to find keys that
occur twice. Workers seek. Fingerprints are made of the names, order and sizes of members and of where blocks begin; a changed byte is
noticed when shards are written.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress, groupby, islice
from operator import ne
from typing import Any, BinaryIO

import numpy as np

from stages.datasets.config import WebdatasetEdits
from stages.datasets.io import cells, files, image_files
from stages.datasets.io.blocks import Block, read_addressed
from stages.datasets.io.faults import Fault
from stages.datasets.io.locations import digest, digests_of, repeated
from stages.datasets.io.tar_index import scanned
from stages.datasets.io.text_tables import MOST_LEVELS, Ambiguous, is_nested, unambiguous
from stages.datasets.slices import Edit, Request, Slice, cut_blockwise, is_text, position
from stages.engine import tar
from stages.engine.contracts import Quarantined
from stages.engine.ids import content_id

DATASET = "webdataset"
BLOCK_SAMPLES = 64
LABELS = ("language", "task", "licence")

Members = list[tuple[str, tar.Member]]
"""Members of a sample with their fields."""


def plan(config: WebdatasetEdits, request: Request) -> list[Slice]:
    """Slices of samples. Raises ``ValueError`` for a tar that was cut short, a key that occurs twice, and fields that are not there."""
    folder, names = files.find(config.path, suffixes=(".tar",), what=request.key)
    keys: dict[str, array[int]] = {name: array("q") for name in names}
    edits = len(_edited(config.edited)) if request.edited else 1
    blocks = [
        block._replace(rows=block.rows * edits)
        for block in files.of_each(folder, names, lambda name: _blocks(folder, name, keys[name], request))
    ]
    if not blocks:
        raise ValueError(f"{request.key}: the tars of {config.path} are empty")
    _reject_duplicates(folder, keys, request)
    shared = config.model_dump(mode="json", exclude={"dataset", "path"} | (set() if request.edited else {"edited"}))
    _check_fields(folder, names[0], shared, request)
    return cut_blockwise(DATASET, folder, shared, blocks, request.unit_rows)


def fetch(piece: Slice) -> Iterator[Edit | Quarantined]:
    """Read the members of the samples."""
    fields = _edited(piece.shared.get("edited", ""))
    with files.OneOpen(piece.location) as tars:
        wanted = groupby(piece.rows, key=lambda row: (row[1][0], row[1][1], row[1][2] // len(fields)))
        rows = [(address, list(same)) for address, same in wanted]
        addresses = (address for address, _ in rows)
        samples = read_addressed(addresses, lambda name, start, first: islice(_samples(tars.get(name), start), first, None))
        for ((name, *_), of_sample), (key, members) in zip(rows, samples, strict=True):
            for number, (_, _, row, _) in of_sample:
                yield _edit(piece.shared, fields, row % len(fields), key, position(name, number), members, tars.get(name))


def _edit(
    shared: Mapping[str, Any], edited: Sequence[str], which: int, key: str, where: str, members: Members, file: BinaryIO
) -> Edit | Quarantined:
    """The edit in the field ``edited[which]`` of a sample."""
    several = not isinstance(shared.get("edited", ""), str)
    row_id = f"{key}.{edited[which]}" if several else key
    fields = {**shared, "edited": edited[which]} if "edited" in shared else shared
    found: dict[str, tar.Member] = {}
    for role in (role for role in ("source", "edited", "text") if role in fields):
        matching = [member for field, member in members if _matches(fields[role], field)]
        if len(matching) != 1:
            reason = "missing-image" if role != "text" and not matching else "bad-sample"
            there = ", ".join(field for field, _ in members)
            return Quarantined(row_id, where, reason, f"the sample has {len(matching)} members {fields[role]}, it has {there}")
        found[role] = matching[0]
        if (fault := image_files.too_large(found[role].size, f"the {role} {found[role].name}")) is not None:
            return Quarantined(row_id, where, *fault)
    parsed = _parsed(_read(file, found["text"]), found["text"].name, fields["instruction"])
    if isinstance(parsed, Fault):
        return Quarantined(row_id, where, *parsed)
    instruction, labels, others = parsed
    for name in ("editor", "seed"):
        given = others.get(name)
        if isinstance(given, list) and len(given) != len(edited):
            message = f"{name} is a list of {len(given)}, but there are {len(edited)} fields of edited images"
            return Quarantined(row_id, where, "bad-sample", message)
        if isinstance(given, list):
            others[name] = given[which]
    if several:
        others["editor"] = others.get("editor") or edited[which]
    return Edit(
        row_id=row_id,
        position=where,
        dataset=DATASET,
        source=_read(file, found["source"]),
        source_path=found["source"].name,
        instruction=instruction,
        edited=_read(file, found["edited"]) if "edited" in found else b"",
        edited_path=found["edited"].name if "edited" in found else None,
        language=labels["language"] or cells.by_characters(instruction),
        task=labels["task"],
        licence=labels["licence"] or fields["licence"],
        metadata=json.dumps(cells.plain(others), sort_keys=True, ensure_ascii=False),
        editor=cells.text(others.get("editor")),
        seed=cells.text(others.get("seed")),
    )


def _parsed(data: bytes, name: str, instruction_key: str) -> tuple[str, dict[str, str], dict[str, Any]] | Fault:
    """Instruction, labels, and everything else."""
    is_json = name.lower().endswith(".json")
    try:
        content: Any = json.loads(data, object_pairs_hook=unambiguous) if is_json else {instruction_key: data.decode("utf-8-sig").strip()}
    except (ValueError, RecursionError) as error:
        return Fault("bad-sample", f"{name} cannot be read ({error})")
    if isinstance(content, Ambiguous):
        return Fault("bad-sample", f"{name} cannot be read: {content['unreadable']}")
    if isinstance(content, dict) and is_nested(content):
        return Fault("bad-sample", f"{name} has more than {MOST_LEVELS} levels of lists and objects")
    if not isinstance(content, dict) or not is_text(content):
        return Fault("bad-sample", f"{name} should be a JSON object of valid Unicode")
    instruction = cells.instruction(content.get(instruction_key))
    if isinstance(instruction, Fault):
        return instruction
    others = {key: value for key, value in content.items() if key not in (instruction_key, *LABELS)}
    labels = {name: cells.text(content.get(name)) for name in LABELS}
    return instruction[0], labels, others


def _edited(configured: str | Sequence[str]) -> Sequence[str]:
    """The fields of edited images."""
    return (configured,) if isinstance(configured, str) else configured


def _matches(configured: str, field: str) -> bool:
    return field == configured or field.rpartition(".")[0] == configured


def _read(file: BinaryIO, member: tar.Member) -> bytes:
    file.seek(member.offset)
    return file.read(member.size)


def _samples(file: BinaryIO, start: int) -> Iterator[tuple[str, Members]]:
    """Key and members of each sample, from a byte where a header begins."""
    file.seek(start)
    members = tar.scan(file)  # which seeks by itself, so the members may be read in between
    for key, same in groupby((member for member in members if _key(member.name)), key=lambda member: _key(member.name)):
        yield key, [(member.name[len(key) + 1 :], member) for member in same]


def _key(name: str) -> str:
    """The key of the sample that a member of this name is of; empty for hidden files, such as those that macOS adds to archives."""
    base = name.rfind("/") + 1
    dot = name.find(".", base)
    return name if dot < 0 else name[:dot] if dot > base else ""


def _blocks(folder: str, name: str, digests: array[int], request: Request) -> Iterator[Block]:
    """Blocks of a tar; a digest of each key goes to ``digests``."""
    begin = count = 0
    last, names, sizes = None, list[str](), np.empty(0, np.int64)
    for found in scanned(folder, name, request.key):
        keys = [_key(member) if "/" in member else member.partition(".")[0] for member in found.names]  # most names have no folder
        if "" in keys:
            kept = [*map(bool, keys)]
            found = tar.Members([*compress(found.names, kept)], *(column[kept] for column in found[1:]))
            keys = [*filter(None, keys)]
        new = [*compress(range(len(keys)), map(ne, keys, [last, *keys]))]
        digests.frombytes(digests_of([keys[place] for place in new]).tobytes())
        first, done = len(names), 0
        names, sizes = names + found.names, np.append(sizes, found.sizes)
        for place in new[BLOCK_SAMPLES - count :: BLOCK_SAMPLES]:
            yield Block(name, begin, BLOCK_SAMPLES, _mark(names[done : first + place], sizes[done : first + place]))
            begin, done = int(found.begins[place]), first + place
            count -= BLOCK_SAMPLES
        count += len(new)
        last, names, sizes = keys[-1] if keys else last, names[done:], sizes[done:]
    if count:
        yield Block(name, begin, count, _mark(names, sizes))


def _mark(names: Sequence[str], sizes: np.ndarray) -> str:
    """Hash of the names and sizes, int64 [n], of members."""
    return content_id("members", "\0".join(names).encode(errors="surrogateescape"), sizes.astype("<i8").tobytes())


def _reject_duplicates(folder: str, keys: Mapping[str, array[int]], request: Request) -> None:
    """Raise ``ValueError`` when two samples have the same key, in one tar or in two."""
    equal = repeated(*keys.values())
    if not len(equal):
        return
    where = []
    for name, digests in keys.items():
        if np.isin(equal, np.frombuffer(digests, np.int64)).any():
            there = groupby(key for found in scanned(folder, name, request.key) for member in found.names if (key := _key(member)))
            where += [(key, name) for key, _ in there if digest(key) in equal]
    first, (there, *_) = where[0], [name for key, name in where[1:] if digest(key) == digest(where[0][0])]
    places, remedy = f"in {first[1]} and in {there}", "remove the superfluous tar, or name those to read with a pattern"
    if there == first[1]:
        places, remedy = f"twice in {there}", "write that tar anew, members of a sample one after the other"
    raise ValueError(f"{request.key}: {folder}: the key {first[0]} is {places}; a key names one sample: {remedy}")


def _check_fields(folder: str, name: str, fields: Mapping[str, Any], request: Request) -> None:
    """Raise ``ValueError`` when none of the first samples has a configured field: then the configuration is wrong, not the row."""
    with files.opened(f"{folder}/{name}") as file:
        first = [[field for field, _ in members] for _, members in islice(_samples(file, 0), BLOCK_SAMPLES)]
    wanted = [field for role in ("source", "edited", "text") if role in fields for field in _edited(fields[role])]
    for configured in wanted:
        if first and not any(_matches(configured, field) for there in first for field in there):
            there = ", ".join(first[0])
            raise ValueError(f"{request.key}: the samples of {folder}/{name} have no member {configured}; the first has {there}")
