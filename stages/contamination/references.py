"""What edits are compared with, as hashes: sources and instructions of benchmarks, of other data, and of the reward model's training.

In: the references of the configuration, and the model's directory. Out: tables of the contract ``references``. A unit is a slice of a
reference. Workers read and hash its images, once as long as the reference stays unchanged. What cannot be read is counted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reward.inputs.decoding import DECODER, decode
from reward.inputs.sample import ImageError
from reward.likeness import perceptual_hash, words
from stages.contamination.config import BenchmarkItems, ImageFolder, Reference
from stages.datasets import readers
from stages.datasets.io import cells, files, image_files
from stages.datasets.io.faults import Fault
from stages.datasets.slices import Slice
from stages.engine import contracts, storage
from stages.engine.contracts import Quarantined
from stages.engine.ids import settings_hash
from stages.engine.units import Unit, UnitOutput, Work

if TYPE_CHECKING:
    from reward.benchmarks.pictures import Picture

TRAINING = "training"
"""Name of the reference that the reward model carries."""
SOURCES = "sources.parquet"
"""File in a model's directory that names, as hashes, the sources it was trained and calibrated on."""
PICTURES = (".png", ".jpg", ".jpeg", ".webp")
UNIT_ITEMS = 200

Item = tuple[str, bytes, str]
"""Id, encoded source and instruction."""


@dataclass(frozen=True)
class ImagePaths:
    """Some images of a folder."""

    folder: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Pictures:
    """Some items of a benchmark: id, place of the source, instruction."""

    items: tuple[tuple[str, Picture, str], ...]


Payload = Slice | ImagePaths | Pictures


def units(reference: Reference, key: str) -> list[Unit]:
    """Units of a reference. Raises ``ValueError`` naming the reference when it cannot be read.

    key: configuration key of the comparison, for messages.
    """
    pieces = _pieces(reference, f"{key}.references, {reference.name}")
    return [Unit(settings_hash("reference", DECODER, reference.name, mark), (reference.name, piece), rows) for piece, mark, rows in pieces]


def make_work() -> Work:
    """The work of one unit: a row of the contract ``references`` per item that can be read."""

    def work(payload: tuple[str, Payload]) -> UnitOutput:
        name, piece = payload
        rows: list[dict[str, Any]] = []
        unreadable: list[Quarantined] = []
        for entry in _items(piece):
            found = entry if isinstance(entry, Quarantined) else row(name, *entry)
            (unreadable if isinstance(found, Quarantined) else rows).append(found)  # ty: ignore[invalid-argument-type]
        return UnitOutput({"references": contracts.table("references", rows)}, len(rows) + len(unreadable), len(rows), unreadable)

    return work


def of_training(model: Path) -> Path | None:
    """A model's record of the sources it was trained on; None without one, as for an imported model. Raises ``ValueError`` for damage."""
    path = model / SOURCES
    if not path.exists():
        return None
    try:
        storage.read_table(path, contracts.REFERENCES.names)
    except (OSError, ValueError) as error:
        raise ValueError(f"what the model was trained on cannot be read from {path} ({error}); copy the model again") from None
    return path


def publish_training(model: Path, sources: Iterable[Item]) -> None:
    """Write into a model's directory what it was trained on. Every image must decode, because the model was trained on it."""
    rows = []
    for source_id, data, instruction in sources:
        found = row(TRAINING, source_id, data, instruction)
        assert isinstance(found, dict), f"source {source_id} was trained on and does not decode"
        rows.append(found)
    storage.publish_bytes(model / SOURCES, storage.table_bytes(contracts.table("references", rows)))


def row(name: str, item: str, data: bytes, instruction: str) -> dict[str, Any] | Quarantined:
    """Row of the contract ``references``, or why the image has no hash. ``name``: of the reference."""
    try:
        bits = perceptual_hash(decode(data, what=f"the source of {item}"))
    except ImageError as error:
        return Quarantined(item, f"{name}/{item}", "undecodable-image", str(error))
    return {
        "reference": name,
        "item": item,
        "source_sha256": hashlib.sha256(data).hexdigest(),
        "source_phash": bits,
        "instruction": words(instruction),
    }


def _pieces(reference: Reference, key: str) -> Iterator[tuple[Payload, str, int]]:
    """Parts of a reference, with what names their content and how many items they have."""
    match reference.input:
        case ImageFolder() as given:
            folder, names = files.find(given.path, suffixes=PICTURES, what=key)
            filesystem, top = storage.locate(folder)
            sizes = {name: filesystem.size(f"{top}/{name}") for name in names}
            for part in _parts(names):
                yield ImagePaths(storage.absolute(folder), tuple(part)), settings_hash([[name, sizes[name]] for name in part]), len(part)
        case BenchmarkItems() as given:
            from reward.benchmarks.names import benchmark

            try:
                loaded = benchmark(given.benchmark).load(storage.absolute(given.path))
            except ValueError as error:
                raise ValueError(f"{key}: {error}") from None
            found = {(e.source.content, e.instruction): (i.item_id, e.source, e.instruction) for i in reversed(loaded) for e in i.edits[:1]}
            for part in _parts(sorted(found.values(), key=lambda entry: (entry[0], entry[2]))):
                yield Pictures(tuple(part)), settings_hash([[item, place.content, text] for item, place, text in part]), len(part)
        case given:
            for piece in readers.plan(given, seed=0, world=None, unit_rows=UNIT_ITEMS, key=key, edited=False):
                yield piece, piece.fingerprint, len(piece.rows)


def _items(piece: Payload) -> Iterator[Item | Quarantined]:
    if isinstance(piece, ImagePaths):
        for name in piece.names:
            item = cells.plain(name)  # a name on disk need not be Unicode
            data = image_files.read(f"{piece.folder}/{name}", f"the picture {item}")
            yield Quarantined(item, item, *data) if isinstance(data, Fault) else (item, data, "")
    elif isinstance(piece, Pictures):
        from reward.benchmarks.pictures import read

        contents = read([place for _, place, _ in piece.items])
        yield from ((item, contents[place.content], instruction) for item, place, instruction in piece.items)
    else:
        for entry in readers.fetch(piece):
            yield entry if isinstance(entry, Quarantined) else (entry.row_id, entry.source, entry.instruction)


def _parts(entries: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for first in range(0, len(entries), UNIT_ITEMS):
        yield entries[first : first + UNIT_ITEMS]
